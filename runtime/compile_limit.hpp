#pragma once
/// \file
/// How long compilers may take.

#include <chrono>

#include "base/environment.hpp"

namespace ce::runtime {

/// For one kernel: what CE_COMPILE_TIMEOUT says. \throws InvalidArgument where that means nothing
[[nodiscard]] inline std::chrono::seconds compile_limit(int seconds_by_default) {
  return std::chrono::seconds(number_of_environment("CE_COMPILE_TIMEOUT", seconds_by_default, 1, 86'400));
}

}  // namespace ce::runtime
