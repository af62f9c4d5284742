#pragma once
/// \file
/// Numbers that kernels must carry through: they stand in trial values and come out of the reference.

#include <limits>

namespace ce::generator {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

}  // namespace ce::generator
