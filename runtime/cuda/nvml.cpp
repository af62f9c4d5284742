#include "runtime/cuda/nvml.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/made_once.hpp"

namespace ce::runtime::cuda {
namespace {

// The few declarations that are needed here; toolkits do not always come with nvml.h.
using Result = int;  // 0 is success
using Handle = struct NvmlDevice*;
constexpr Result success = 0;
constexpr Result insufficient_size = 7;
constexpr int clock_sm = 1, clock_memory = 2;
constexpr int temperature_gpu = 0;

struct Nvml {
  Result (*init)() = nullptr;
  Result (*driver_version)(char*, unsigned) = nullptr;
  Result (*handle)(const char* pci_bus_id, Handle*) = nullptr;
  Result (*clock)(Handle, int type, unsigned* mhz) = nullptr;
  Result (*max_clock)(Handle, int type, unsigned* mhz) = nullptr;
  Result (*temperature)(Handle, int sensor, unsigned* celsius) = nullptr;
  Result (*power)(Handle, unsigned* milliwatts) = nullptr;
  Result (*power_limit)(Handle, unsigned* milliwatts) = nullptr;
  Result (*throttle)(Handle, unsigned long long* reasons) = nullptr;
  Result (*persistence)(Handle, int* enabled) = nullptr;
  Result (*processes)(Handle, unsigned* count, void* infos) = nullptr;
};

template <class Function>
void find(void* library, Function& function, const char* symbol) {
  if (function == nullptr) function = reinterpret_cast<Function>(dlsym(library, symbol));
}

/// Without a usable NVML every member is null.
Nvml load() {
  Nvml nvml;
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {};
  find(library, nvml.init, "nvmlInit_v2");
  if (nvml.init == nullptr || nvml.init() != success) return {};
  find(library, nvml.driver_version, "nvmlSystemGetDriverVersion");
  find(library, nvml.handle, "nvmlDeviceGetHandleByPciBusId_v2");
  find(library, nvml.clock, "nvmlDeviceGetClockInfo");
  find(library, nvml.max_clock, "nvmlDeviceGetMaxClockInfo");
  find(library, nvml.temperature, "nvmlDeviceGetTemperature");
  find(library, nvml.power, "nvmlDeviceGetPowerUsage");
  find(library, nvml.power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  find(library, nvml.throttle, "nvmlDeviceGetCurrentClocksEventReasons");
  find(library, nvml.throttle, "nvmlDeviceGetCurrentClocksThrottleReasons");  // its name before driver 535
  find(library, nvml.persistence, "nvmlDeviceGetPersistenceMode");
  find(library, nvml.processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  return nvml;
}

const Nvml& get() {
  static constinit MadeOnce<Nvml> nvml;
  return nvml.get(load);
}

/// The value that `query` writes, or nothing where it is missing or refuses.
template <class Value, class... Parameters, class... Arguments>
std::optional<Value> ask(Result (*query)(Parameters...), Arguments... arguments) {
  Value value{};
  if (query == nullptr || query(arguments..., &value) != success) return std::nullopt;
  return value;
}

template <class Value>
void add(Environment& environment, const char* name, std::optional<Value> value) {
  if (value) environment[name] = fmt::format("{}", *value);
}

void add_watts(Environment& environment, const char* name, std::optional<unsigned> milliwatts) {
  if (milliwatts) environment[name] = fmt::format("{:.1f}", *milliwatts / 1000.0);
}

}  // namespace

void add_nvml_environment(const std::string& pci_bus_id, Environment& environment) {
  const Nvml& nvml = get();
  Handle gpu = nullptr;
  if (nvml.handle == nullptr || nvml.handle(pci_bus_id.c_str(), &gpu) != success) return;
  add(environment, "sm_clock_mhz", ask<unsigned>(nvml.clock, gpu, clock_sm));
  add(environment, "sm_clock_max_mhz", ask<unsigned>(nvml.max_clock, gpu, clock_sm));
  add(environment, "memory_clock_mhz", ask<unsigned>(nvml.clock, gpu, clock_memory));
  add(environment, "temperature_c", ask<unsigned>(nvml.temperature, gpu, temperature_gpu));
  add_watts(environment, "power_w", ask<unsigned>(nvml.power, gpu));
  add_watts(environment, "power_limit_w", ask<unsigned>(nvml.power_limit, gpu));
  if (const auto reasons = ask<unsigned long long>(nvml.throttle, gpu))
    environment["throttle"] = throttle_text(*reasons);
  if (const auto on = ask<int>(nvml.persistence, gpu)) environment["persistence"] = *on != 0 ? "on" : "off";
  if (nvml.processes != nullptr) {
    // With no room for their descriptions NVML only returns the number of processes.
    unsigned count = 0;
    const Result result = nvml.processes(gpu, &count, nullptr);
    if (result == success || result == insufficient_size)
      environment["compute_processes"] = std::to_string(count);
  }
}

std::optional<std::string> nvml_driver_version() {
  const Nvml& nvml = get();
  char text[96] = {};
  if (nvml.driver_version == nullptr || nvml.driver_version(text, sizeof text - 1) != success)
    return std::nullopt;
  return text;
}

std::string throttle_text(unsigned long long reasons) {
  constexpr struct {
    unsigned long long bit;
    const char* name;
  } known[] = {{0x1, "idle"},
               {0x2, "application clocks"},
               {0x4, "power cap"},
               {0x8, "hardware"},
               {0x10, "sync boost"},
               {0x20, "software thermal"},
               {0x40, "hardware thermal"},
               {0x80, "power brake"},
               {0x100, "display clocks"}};
  std::string text;
  for (const auto& [bit, name] : known) {
    if ((reasons & bit) != 0) text += (text.empty() ? "" : ", ") + std::string(name);
    reasons &= ~bit;
  }
  if (reasons != 0) text += fmt::format("{}{:#x}", text.empty() ? "" : ", ", reasons);
  return text.empty() ? "none" : text;
}

}  // namespace ce::runtime::cuda
