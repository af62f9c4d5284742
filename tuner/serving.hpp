#pragma once
/// \file
/// Decides whether a kernel from a database may serve on this machine.

#include <cstdint>
#include <optional>
#include <string>

#include "cache/cache.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"
#include "tuner/kernel.hpp"

namespace ce::tuner {

/// The machine's name in the database: the UUID of its GPU, or the name of the host.
[[nodiscard]] std::string machine_of(const runtime::Device& device);

/// Whether this machine has run the kernel and found it right, in a search or by verify_once().
[[nodiscard]] bool is_verified(const runtime::Device& device, const cache::Cache& cache,
                               const Kernel& kernel);

/// Checks the kernel against the reference, unless is_verified(); the database notes success.
/// \returns the error, in words; nothing if the kernel is right
/// \throws OutOfMemory if memory is too short for the inputs, DeviceError if the kernel faults
[[nodiscard]] std::optional<std::string> verify_once(runtime::Device& device, cache::Cache& cache,
                                                     const generator::Problem& problem, const Kernel& kernel,
                                                     std::uint64_t seed);

}  // namespace ce::tuner
