#pragma once
/// \file
/// Views of memory.

#include <cstdint>
#include <limits>

#include "ce/base/dtype.hpp"
#include "ce/base/language.hpp"

namespace ce {

/// A row stride that means "as long as a row": the rows lie one after the other.
inline constexpr std::int64_t contiguous = std::numeric_limits<std::int64_t>::min();

/// A view of [rows, columns] elements in device memory (or host memory, on the host device). Owns nothing.
/// Kernels write only to the tensors that an operation names as its outputs.
///
/// Tensor{} is no tensor: an optional one that is not given, an error where the operation needs it. A call without rows
/// says so by rows = 0 and the columns or the dtype that they would have; `data` may be null then.
///
/// Row r starts r x row_stride elements after `data`; where rows lie in batches,
/// (r / batch_rows) x batch_stride + (r % batch_rows) x row_stride. No two elements may share memory. The
/// stride of a dimension of size 1 is never used. Kernels are fastest where column_stride is 1.
struct Tensor {
  void* data = nullptr;  ///< the first element, aligned to the size of an element
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 1;
  std::int64_t row_stride = contiguous;  ///< elements from one row to the next
  std::int64_t column_stride = 1;        ///< elements from one column to the next
  std::int64_t batch_rows = 0;           ///< rows of a batch, a divisor of `rows`; 0: all are one batch
  std::int64_t batch_stride = 0;         ///< elements from one batch to the next; only with batch_rows

  friend bool operator==(const Tensor&, const Tensor&) = default;

  /// Elements from one row to the next, `contiguous` resolved.
  [[nodiscard]] constexpr std::int64_t row_step() const noexcept {
    return row_stride != contiguous ? row_stride : columns == 1 ? 1 : columns * column_stride;
  }
};

/// A dense [outer, classes, inner] array as rows of classes: what PyTorch calls (N, C, d1, ...), with the
/// product of d1, ... as `inner`. Row o x inner + i holds the classes of position i of item o, so that the
/// row's target is element [o, i] of a dense [outer, inner] array.
/// \throws InvalidArgument for a negative size, or more rows than 64 bits count
[[nodiscard]] Tensor class_dimension_second(void* data, DType dtype, std::int64_t outer, std::int64_t classes,
                                            std::int64_t inner);

/// A [batches, batch_rows, columns] view with strides of its own, as rows: `logits[:, :-1, :]` of a dense
/// [b, s, v] array is batched(data, dtype, b, s - 1, v, s * v).
/// \param batch_stride  elements from one batch to the next
/// \param row_stride    elements from one row to the next inside a batch
/// \throws InvalidArgument for a negative size, or more rows than 64 bits count
[[nodiscard]] Tensor batched(void* data, DType dtype, std::int64_t batches, std::int64_t batch_rows,
                             std::int64_t columns, std::int64_t batch_stride,
                             std::int64_t row_stride = contiguous);

}  // namespace ce
