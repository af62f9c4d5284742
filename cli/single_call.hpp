#pragma once
/// \file
/// One call of an operation on given data, by a config that is given too.

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "cli/problem_options.hpp"
#include "generator/config.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"

namespace ce::cli {

/// Bytes of tensors, by their names.
using TensorBytes = std::map<std::string, std::vector<std::byte>>;

/// Checks what a call with these options and tensors would check, and runs the config once.
/// \param inputs  of every input that tensors_of() names, of its size
/// \returns every output
/// \throws InvalidArgument naming an amount or --config, CompileError, Unsupported, DeviceError,
/// TargetOutOfRange
[[nodiscard]] TensorBytes call_once(runtime::Device& device, cache::Cache& cache,
                                    const generator::Problem& problem, const Amounts& amounts,
                                    const generator::Config& config, const TensorBytes& inputs);

}  // namespace ce::cli
