#include "runtime/cuda/describe.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "runtime/cuda/nvml.hpp"
#include "runtime/cuda/nvrtc.hpp"

namespace ce::runtime::cuda {
namespace {

/// "1g.18gb" of "NVIDIA H200 MIG 1g.18gb": the driver appends a slice's name to its GPU's.
std::string mig_slice_of(const std::string& name) {
  constexpr std::string_view mark = " MIG ";
  const std::size_t at = name.find(mark);
  return at == std::string::npos ? std::string() : name.substr(at + mark.size());
}

std::string host_name() {
  char text[256] = {};
  return gethostname(text, sizeof text - 1) == 0 ? text : "unknown";
}

}  // namespace

Model model_of(const Driver& driver, CUdevice device) {
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    CE_CUDA_CHECK(driver, cuDeviceGetAttribute(&value, which, device));
    return value;
  };
  char name[256] = {};
  std::size_t memory_bytes = 0;
  CE_CUDA_CHECK(driver, cuDeviceGetName(name, sizeof name - 1, device));
  CE_CUDA_CHECK(driver, cuDeviceTotalMem(&memory_bytes, device));
  return {
      .name = name,
      .capability = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                    attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
      .multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
      .l2_bytes = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
      .shared_bytes_per_block = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
      .shared_bytes_per_multiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
      .registers_per_multiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
      .threads_per_multiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
      .mig_slice = mig_slice_of(name),
      .memory_bytes = static_cast<std::int64_t>(memory_bytes)};
}

std::string uuid_of(const Driver& driver, CUdevice device, const Model& model) {
  CUuuid uuid = {};
  CE_CUDA_CHECK(driver, cuDeviceGetUuid(&uuid, device));
  std::string text = model.mig_slice.empty() ? "GPU" : "MIG";
  for (int i = 0; i < 16; ++i) {
    const bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    text += fmt::format("{}{:02x}", dash ? "-" : "", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

std::string problem_of(const Model& model) {
  if (model.capability >= lowest_capability) return {};
  return fmt::format("{} has compute capability {}.{}; ce needs at least {}.{}", model.name,
                     model.capability / 10, model.capability % 10, lowest_capability / 10,
                     lowest_capability % 10);
}

Environment environment_of(const Driver& driver, CUdevice device, const Model& model) {
  char pci_bus_id[32] = {};
  CE_CUDA_CHECK(driver, cuDeviceGetPCIBusId(pci_bus_id, sizeof pci_bus_id - 1, device));
  Environment environment = {{"uuid", uuid_of(driver, device, model)},
                             {"cuda", driver.version()},
                             {"pci", pci_bus_id},
                             {"host", host_name()}};
  environment["driver"] = nvml_driver_version().value_or("CUDA " + environment["cuda"]);
  if (const Nvrtc* nvrtc = Nvrtc::if_opened()) environment["nvrtc"] = nvrtc->version();
  add_nvml_environment(pci_bus_id, environment);
  return environment;
}

}  // namespace ce::runtime::cuda
