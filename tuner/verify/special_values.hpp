#pragma once
/// \file
/// Special numbers that kernels must propagate: they occur in trial inputs and in reference results.

#include <limits>

namespace ce::generator {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

}  // namespace ce::generator
