#pragma once
/// \file
/// Elements of any dtype in host memory.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ce/dtype.hpp"

namespace ce::generator {

/// The element at `index` of an array. Exact for integers below 2^53.
[[nodiscard]] double read_element(DType dtype, const std::byte* array, std::int64_t index) noexcept;
/// Reads the elements at first, first + step, ...
void read_elements(DType dtype, const std::byte* array, std::int64_t first, std::int64_t step,
                   std::span<double> values) noexcept;

/// Writes an element, rounded to nearest even; integers must be whole.
void write_element(DType dtype, std::byte* array, std::int64_t index, double value) noexcept;
/// Writes the elements at first, first + step, ...; `values` receives the rounded values.
void write_elements(DType dtype, std::byte* array, std::int64_t first, std::int64_t step,
                    std::span<double> values) noexcept;

/// The largest finite value of a floating-point dtype.
[[nodiscard]] double largest(DType dtype) noexcept;

}  // namespace ce::generator
