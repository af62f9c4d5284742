#pragma once
/// \file
/// GPUs, through the CUDA driver that this machine has, if any.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/device.hpp"

namespace ce::runtime {

/// The GPU with that ordinal (CUDA_VISIBLE_DEVICES applies), over its primary context, which the runtime API
/// and PyTorch share. Modules may outlive the device; buffers may not. Copies that take no stream run on the
/// device's own stream and wait for no other, so what another stream is still writing must be synchronised
/// first. Pinned host memory has PointerKind::host.
///
/// Kernels compile in processes of `ce-tune compile-worker`, three for every four processors that this
/// process may use, up to 16, started by the first compile() and ended with the device. CE_COMPILE_WORKERS replaces their
/// number (0 compiles in this process, as happens where there is no ce-tune of this version; CE_WORKER names
/// one), and CE_COMPILE_TIMEOUT the 60 seconds that a kernel may take.
///
/// \throws Unsupported without a driver (naming libcuda.so.1), without a GPU, or for one below compute
///         capability 7.5; InvalidArgument for an ordinal that does not exist or an environment variable that
///         is no number; DeviceError
[[nodiscard]] std::unique_ptr<Device> open_cuda_device(int ordinal);

/// How many GPUs this process can see; 0 without a driver.
[[nodiscard]] int cuda_device_count();

/// The ordinal of the calling thread's current CUDA context; nothing when it has none, as before its first
/// call into the runtime API.
[[nodiscard]] std::optional<int> current_cuda_device();

/// What `doctor` tells about CUDA.
struct CudaStatus {
  struct Gpu {
    int ordinal = 0;
    Model model;
    std::string uuid;
    std::string problem;  ///< why it cannot be used; empty when it can
  };

  bool driver_found = false;
  std::string driver_problem;  ///< why there is none
  std::string cuda_version;    ///< that the driver implements: "13.0"
  std::string driver_version;  ///< its own: "580.159.04"; empty without NVML

  bool nvrtc_found = false;
  std::string nvrtc_path;
  std::string nvrtc_version;
  std::vector<int> nvrtc_architectures;  ///< of those the kernels are tested for
  std::string nvrtc_problem;             ///< why it compiles nothing; empty where it does
  std::vector<std::string> nvrtc_tried;  ///< every place that was looked in before, with what was wrong

  std::vector<Gpu> gpus;
};

/// Looks for driver, GPUs and NVRTC, which compiles a few lines. Creates no context.
[[nodiscard]] CudaStatus cuda_status();

}  // namespace ce::runtime
