#pragma once
/// \file
/// Elements of any dtype in host memory.

#include <cstddef>
#include <cstdint>

#include "ce/base/dtype.hpp"

namespace ce::generator {

/// The element at `index` of an array of floating-point dtype.
[[nodiscard]] double read_element(DType dtype, const std::byte* array, std::int64_t index) noexcept;
/// Rounds to nearest even.
void write_element(DType dtype, std::byte* array, std::int64_t index, double value) noexcept;
/// Into an i32 or i64 array.
void write_index(DType dtype, std::byte* array, std::int64_t index, std::int64_t value) noexcept;

}  // namespace ce::generator
