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

/// Contents of tensors, by their names.
using TensorBytes = std::map<std::string, std::vector<std::byte>>;

/// Whether to verify a config that this machine has not verified: a user who names one may want to see its wrong
/// results.
enum class Verify : std::uint8_t { no, once };

/// The config's kernel for one problem. \throws InvalidArgument naming --config if it cannot run it, CompileError,
/// Unsupported, Error(verification) if its results are wrong
[[nodiscard]] tuner::Kernel kernel_of(runtime::Device& device, cache::Cache& cache,
                                      const generator::Problem& problem, const generator::Config& config,
                                      Verify verify);

/// Chooses the kernel for the problem that the library derives from the call's tensors.
using KernelChoice = std::function<const tuner::Kernel&(const generator::Problem&)>;

/// Makes one call with these options and tensors, with all checks of a call.
/// \param inputs  contents of every input that tensors_of() names, with its size
/// \returns the contents of every output
/// \throws InvalidArgument naming the option of an amount, DeviceError, TargetOutOfRange, and the errors of `choose`
[[nodiscard]] TensorBytes call_once(runtime::Device& device, const generator::Problem& problem,
                                    const Amounts& amounts, const KernelChoice& choose,
                                    const TensorBytes& inputs);

}  // namespace ce::cli
