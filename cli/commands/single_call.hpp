#pragma once
/// \file
/// One call of an operation on given data.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "cli/problem_options.hpp"
#include "generator/config.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"
#include "tuner/kernel.hpp"

namespace ce::cli {

/// Bytes of tensors, by their names.
using TensorBytes = std::map<std::string, std::vector<std::byte>>;

/// Whether a config is verified that this machine has not verified: a user who names one may want to see it be wrong.
enum class Verify : std::uint8_t { no, once };

/// The config's kernel for one problem. \throws InvalidArgument naming --config where it cannot run it,
/// CompileError, Unsupported, Error(verification) where its answer is wrong
[[nodiscard]] tuner::Kernel kernel_of(runtime::Device& device, cache::Cache& cache,
                                      const generator::Problem& problem, const generator::Config& config,
                                      Verify verify);

/// What says which kernel runs, of the problem as the library makes it of the call's tensors.
using KernelChoice = std::function<const tuner::Kernel&(const generator::Problem&)>;

/// Checks what a call with these options and tensors would check, and makes it once.
/// \param inputs  of every input that tensors_of() names, of its size
/// \returns every output
/// \throws InvalidArgument naming the option of an amount, DeviceError, TargetOutOfRange, and what `choose` throws
[[nodiscard]] TensorBytes call_once(runtime::Device& device, const generator::Problem& problem,
                                    const Amounts& amounts, const KernelChoice& choose,
                                    const TensorBytes& inputs);

}  // namespace ce::cli
