#include "ce/row_layout.hpp"

namespace ce {

RowLayout row_layout(const Tensor& tensor) noexcept {
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

std::int64_t reach_of(const Tensor& tensor) noexcept {
  if (tensor.rows == 0) return 0;
  const RowLayout layout = row_layout(tensor);
  const std::int64_t batch_rows = layout.batch_rows > 0 ? layout.batch_rows : tensor.rows;
  return (tensor.rows / batch_rows - 1) * layout.batch + (batch_rows - 1) * layout.row +
         (tensor.columns - 1) * layout.column + 1;
}

}  // namespace ce
