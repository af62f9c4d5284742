#pragma once
/// \file
/// The state of a GPU from NVML, which is opened at run time.

#include <optional>
#include <string>

#include "runtime/device.hpp"

namespace ce::runtime::cuda {

/// Adds to `environment` the state of the GPU at that PCI address, as NVML reports it: sm_clock_mhz, memory_clock_mhz,
/// sm_clock_max_mhz, temperature_c, power_w, power_limit_w, throttle, persistence, compute_processes. Values that NVML
/// cannot report are left out; without NVML, all of them. For a MIG slice this is the state of the whole GPU.
void add_nvml_environment(const std::string& pci_bus_id, Environment& environment);

/// The kernel driver's own version, for example "580.159.04"; nothing without NVML.
[[nodiscard]] std::optional<std::string> nvml_driver_version();

/// NVML's reasons for lowered clocks as words, "none" for none.
[[nodiscard]] std::string throttle_text(unsigned long long reasons);

}  // namespace ce::runtime::cuda
