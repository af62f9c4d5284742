#pragma once
/// \file
/// Views of memory.

#include <cstdint>
#include <limits>

#include "ce/base/dtype.hpp"

namespace ce {

/// A row stride that means "as long as a row": the rows lie one after the other.
inline constexpr std::int64_t contiguous = std::numeric_limits<std::int64_t>::min();

/// A view of [rows, columns] elements in device memory (or host memory, on the host device). Owns nothing.
/// Kernels write only to the tensors that an operation names as its outputs.
struct Tensor {
  void* data = nullptr;  ///< the first element, aligned to the size of an element
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 1;
  std::int64_t row_stride = contiguous;  ///< elements from one row to the next; at least `columns`
  std::int64_t column_stride = 1;        ///< must be 1 in this version

  /// Elements from one row to the next, `contiguous` resolved.
  [[nodiscard]] constexpr std::int64_t row_step() const noexcept {
    return row_stride == contiguous ? columns : row_stride;
  }
};

}  // namespace ce
