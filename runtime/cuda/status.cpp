#include <algorithm>

#include "base/made_once.hpp"
#include "ce/error.hpp"
#include "runtime/cuda/describe.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/nvml.hpp"
#include "runtime/cuda/nvrtc.hpp"

namespace ce::runtime {
namespace {

CudaStatus::Gpu gpu_status(const cuda::Driver& driver, int ordinal) {
  CudaStatus::Gpu gpu = {.ordinal = ordinal};
  try {
    CUdevice device = 0;
    CE_CUDA_CHECK(driver, cuDeviceGet(&device, ordinal));
    gpu.model = cuda::model_of(driver, device);
    gpu.uuid = cuda::uuid_of(driver, device, gpu.model);
    gpu.problem = cuda::problem_of(gpu.model);
  } catch (const Error& error) {
    gpu.problem = error.what();
  }
  return gpu;
}

/// The GPUs by ordinal.
std::vector<CUdevice> devices_of(const cuda::Driver& driver) {
  std::vector<CUdevice> devices(static_cast<std::size_t>(cuda_device_count()));
  for (std::size_t ordinal = 0; ordinal < devices.size(); ++ordinal)
    CE_CUDA_CHECK(driver, cuDeviceGet(&devices[ordinal], static_cast<int>(ordinal)));
  return devices;
}

}  // namespace

int cuda_device_count() {
  const auto& [driver, problem] = cuda::Driver::get();
  int count = 0;
  if (driver != nullptr) CE_CUDA_CHECK(*driver, cuDeviceGetCount(&count));
  return count;
}

std::optional<int> current_cuda_device() {
  const cuda::Driver* const driver = cuda::Driver::get().driver.get();
  if (driver == nullptr) return std::nullopt;
  CUdevice current = 0;
  const CUresult result = driver->cuCtxGetDevice(&current);
  if (result == CUDA_ERROR_INVALID_CONTEXT) return std::nullopt;  // no context is current
  driver->check(result, "cuCtxGetDevice");
  static constinit MadeOnce<std::vector<CUdevice>> known;
  const std::vector<CUdevice>& devices = known.get([&] { return devices_of(*driver); });
  const auto found = std::ranges::find(devices, current);
  return found == devices.end() ? std::nullopt : std::optional(static_cast<int>(found - devices.begin()));
}

CudaStatus cuda_status() {
  CudaStatus status;
  const auto& [driver, problem] = cuda::Driver::get();
  status.driver_found = driver != nullptr;
  status.driver_problem = problem;
  if (driver != nullptr) {
    status.cuda_version = driver->version();
    status.driver_version = cuda::nvml_driver_version().value_or("");
    for (int ordinal = 0; ordinal < cuda_device_count(); ++ordinal)
      status.gpus.push_back(gpu_status(*driver, ordinal));
  }
  const auto& [nvrtc, tried] = cuda::Nvrtc::shared();
  status.nvrtc_found = nvrtc != nullptr;
  status.nvrtc_tried = tried;
  if (nvrtc != nullptr) {
    status.nvrtc_path = nvrtc->path();
    status.nvrtc_version = nvrtc->version();
    status.nvrtc_architectures = nvrtc->architectures_to_test();
    status.nvrtc_problem = nvrtc->problem();
  }
  return status;
}

}  // namespace ce::runtime
