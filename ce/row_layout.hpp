#pragma once
/// \file
/// Where the rows of a tensor lie. Not installed.

#include <cstdint>

#include "ce/tensor.hpp"

namespace ce {

/// Strides in elements, without what makes no difference: two views of the same elements in the same order
/// have the same layout.
struct RowLayout {
  std::int64_t row = 0;         ///< as long as a row where there is only one
  std::int64_t batch = 0;       ///< 0 where all rows are evenly apart
  std::int64_t column = 1;      ///< 1 where there is only one
  std::int64_t batch_rows = 0;  ///< 0 where all rows are evenly apart

  friend bool operator==(const RowLayout&, const RowLayout&) = default;
};

/// Of a tensor that check_tensor() has let pass.
[[nodiscard]] RowLayout row_layout(const Tensor& tensor) noexcept;

/// Elements from the first to behind the last one; 0 without rows.
[[nodiscard]] std::int64_t reach_of(const Tensor& tensor) noexcept;

}  // namespace ce
