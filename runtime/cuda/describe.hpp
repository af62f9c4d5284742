#pragma once
/// \file
/// Properties and current state of a GPU.

#include <string>

#include "runtime/cuda/driver.hpp"
#include "runtime/device.hpp"

namespace ce::runtime::cuda {

/// The oldest GPUs that the kernels support: Turing.
inline constexpr int lowest_capability = 75;

/// The model of a GPU. Needs no context.
[[nodiscard]] Model model_of(const Driver& driver, CUdevice device);

/// "GPU-8-4-4-4-12", or "MIG-..." for a slice, as nvidia-smi writes it.
[[nodiscard]] std::string uuid_of(const Driver& driver, CUdevice device, const Model& model);

/// The reason why `ce` cannot use that GPU; empty if it can.
[[nodiscard]] std::string problem_of(const Model& model);

[[nodiscard]] Environment environment_of(const Driver& driver, CUdevice device, const Model& model);

}  // namespace ce::runtime::cuda
