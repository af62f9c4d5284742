#pragma once
/// \file
/// The memory layout of a tensor's rows. Not installed.

#include <cstdint>

#include "ce/tensor.hpp"

namespace ce {

/// Normalised strides in elements: two views of the same elements in the same order have equal layouts.
struct RowLayout {
  std::int64_t row = 0;         ///< the row's length if there is only one
  std::int64_t batch = 0;       ///< 0 if all rows have equal distances
  std::int64_t column = 1;      ///< 1 if there is only one column
  std::int64_t batch_rows = 0;  ///< 0 if all rows have equal distances

  friend bool operator==(const RowLayout&, const RowLayout&) = default;
};

/// The layout of a tensor that check_tensor() has accepted.
[[nodiscard]] inline RowLayout row_layout(const ConstTensor& tensor) noexcept {
  RowLayout layout{.row = tensor.rows > 1 ? tensor.row_step() : tensor.columns,
                   .column = tensor.columns > 1 ? tensor.column_stride : 1};
  if (tensor.batch_rows == 0 || tensor.batch_rows >= tensor.rows) return layout;
  if (tensor.batch_rows == 1) {
    layout.row = tensor.batch_stride;
  } else if (tensor.batch_stride - (tensor.batch_rows - 1) * layout.row != layout.row) {
    layout.batch = tensor.batch_stride;
    layout.batch_rows = tensor.batch_rows;
  }
  return layout;
}

/// Elements from the first to the end of the last one; 0 without rows.
[[nodiscard]] inline std::int64_t reach_of(const ConstTensor& tensor) noexcept {
  if (tensor.rows == 0) return 0;
  const std::int64_t row = (tensor.columns - 1) * tensor.column_stride + 1;
  if (tensor.batch_rows == 0) return (tensor.rows > 1 ? (tensor.rows - 1) * tensor.row_step() : 0) + row;
  const RowLayout layout = row_layout(tensor);
  if (layout.batch_rows == 0) return (tensor.rows - 1) * layout.row + row;
  return (tensor.rows / layout.batch_rows - 1) * layout.batch + (layout.batch_rows - 1) * layout.row + row;
}

}  // namespace ce
