#pragma once
/// \file
/// Whether a kernel that a database names may serve on this machine.

#include <cstdint>
#include <optional>
#include <string>

#include "cache/cache.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"
#include "tuner/kernel.hpp"

namespace ce::tuner {

/// What the database notes of this machine: the uuid of its GPU, or the name of the host.
[[nodiscard]] std::string machine_of(const runtime::Device& device);

/// Whether this machine has run the kernel before and found it right, in a search or by verify_once().
[[nodiscard]] bool is_verified(const runtime::Device& device, const cache::Cache& cache,
                               const Kernel& kernel);

/// Runs the kernel against the reference, unless is_verified(); the database notes that it is right.
/// \returns what is wrong, in words; nothing where it is right
/// \throws OutOfMemory where memory is too short for the inputs, DeviceError where the kernel faults
[[nodiscard]] std::optional<std::string> verify_once(runtime::Device& device, cache::Cache& cache,
                                                     const generator::Problem& problem, const Kernel& kernel,
                                                     std::uint64_t seed);

}  // namespace ce::tuner
