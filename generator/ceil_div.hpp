#pragma once
/// \file
/// Division that rounds up, for numbers of blocks, chunks and vectors.

#include <cstdint>

namespace ce::generator {

/// a / b, rounded up, for a >= 0 and b > 0.
[[nodiscard]] constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace ce::generator
