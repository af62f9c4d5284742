#pragma once
/// \file
/// The time limit of compilers.

#include <chrono>

#include "base/environment.hpp"

namespace ce::runtime {

/// The limit for one kernel, from CE_COMPILE_TIMEOUT. \throws InvalidArgument for an invalid value
[[nodiscard]] inline std::chrono::seconds compile_limit(int seconds_by_default) {
  return std::chrono::seconds(number_of_environment("CE_COMPILE_TIMEOUT", seconds_by_default, 1, 86'400));
}

}  // namespace ce::runtime
