#pragma once
/// \file
/// GPUs, through the CUDA driver that this machine has, if any.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/device.hpp"

namespace ce::runtime {

/// The GPU with that ordinal (CUDA_VISIBLE_DEVICES applies), in its primary context, which the runtime API and PyTorch
/// share. Modules may outlive the device; buffers may not. Copies that take no stream run on the device's own stream
/// and wait for no other stream; so first synchronise data that another stream is still writing. Pinned host memory has
/// PointerKind::host.
///
/// Kernels compile in processes of `ce-tune compile-worker`, three for every four processors that this process may use,
/// up to 16. The first compile() starts them, and they end with the device. CE_COMPILE_WORKERS sets their number (0:
/// this process compiles, as it does if there is no ce-tune of this version), CE_WORKER names the program, and
/// CE_COMPILE_TIMEOUT replaces the limit of 60 seconds a kernel.
///
/// \throws Unsupported without a driver (naming libcuda.so.1), without a GPU, or for a GPU below compute
///                 capability 7.5; InvalidArgument for an ordinal that does not exist or an environment variable that
///                 is not a number; DeviceError
[[nodiscard]] std::unique_ptr<Device> open_cuda_device(int ordinal);

/// Number of GPUs that this process can see; 0 without a driver.
[[nodiscard]] int cuda_device_count();

/// The ordinal of the calling thread's current CUDA context; nothing if it has none, for example before its first call
/// into the runtime API.
[[nodiscard]] std::optional<int> current_cuda_device();

/// The state of CUDA on this machine, for `doctor`.
struct CudaStatus {
  struct Gpu {
    int ordinal = 0;
    Model model;
    std::string uuid;
    std::string problem;  ///< why it cannot be used; empty when it can
  };

  bool driver_found = false;
  std::string driver_problem;  ///< why there is no driver
  std::string cuda_version;    ///< implemented by the driver: "13.0"
  std::string driver_version;  ///< the driver's own version: "580.159.04"; empty without NVML

  bool nvrtc_found = false;
  std::string nvrtc_path;
  std::string nvrtc_version;
  std::vector<int> nvrtc_architectures;  ///< among those that the kernels are tested for
  std::string nvrtc_problem;             ///< why it cannot compile; empty if it can
  std::vector<std::string> nvrtc_tried;  ///< paths that were tried before, with the error of each

  std::vector<Gpu> gpus;
};

/// Looks for driver, GPUs and NVRTC, and compiles a few lines. Creates no context.
[[nodiscard]] CudaStatus cuda_status();

}  // namespace ce::runtime
