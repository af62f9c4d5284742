#pragma once
/// \file
/// Views of memory.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "ce/dtype.hpp"
#include "ce/dtype_of.hpp"
#include "ce/export.hpp"
#include "ce/language.hpp"

namespace ce {

/// A row stride that means "as long as a row": each row follows the one before without a gap.
inline constexpr std::int64_t contiguous = std::numeric_limits<std::int64_t>::min();

/// A view of [rows, columns] elements in device memory (or host memory, on the host device). It owns nothing.
///
/// Tensor{} is no tensor: an optional one is then not given, and a required one is an error. A call without rows passes
/// tensors with rows = 0 and the columns or the dtype that they would otherwise have; `data` may then be null.
///
/// Row r starts r x row_stride elements after `data`; with batches, (r / batch_rows) x batch_stride + (r % batch_rows)
/// x row_stride elements after it. No two elements may share memory. The stride of a dimension of size 1 is never used.
/// Kernels are fastest with a column_stride of 1.
///
/// Tensor and ConstTensor are its two kinds; a Tensor converts to a ConstTensor. tensor() makes either from a pointer,
/// whose type determines the dtype.
template <class Void>
requires std::is_void_v<Void>
struct [[gnu::may_alias]] BasicTensor {
  Void* data = nullptr;  ///< the first element, aligned to the size of an element
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 1;              ///< 1 or more; 0 if softmax or its gradient has nothing to compute
  std::int64_t row_stride = contiguous;  ///< elements from one row to the next
  std::int64_t column_stride = 1;        ///< elements from one column to the next
  std::int64_t batch_rows = 0;           ///< rows of a batch, a divisor of `rows`; 0: one batch
  std::int64_t batch_stride = 0;         ///< elements from one batch to the next; only with batch_rows

  friend bool operator==(const BasicTensor&, const BasicTensor&) = default;

  /// The same elements, read only.
  template <class ConstVoid>
  requires(std::is_same_v<ConstVoid, const void> && !std::is_const_v<Void>) constexpr
  operator BasicTensor<ConstVoid>() const noexcept {  // NOLINT(google-explicit-constructor)
    return {data, dtype, rows, columns, row_stride, column_stride, batch_rows, batch_stride};
  }

  /// Elements from one row to the next; resolves `contiguous`.
  [[nodiscard]] constexpr std::int64_t row_step() const noexcept {
    return row_stride != contiguous ? row_stride : columns == 1 ? 1 : columns * column_stride;
  }
};

/// A tensor that an operation may write.
using Tensor = BasicTensor<void>;
/// A tensor that an operation only reads.
using ConstTensor = BasicTensor<const void>;

namespace detail {

template <class T>
using VoidOf = std::conditional_t<std::is_const_v<T>, const void, void>;

/// A view with the shape and dtype of another view, of these elements.
template <class T>
[[nodiscard]] constexpr BasicTensor<VoidOf<T>> placed(T* data, const Tensor& shape) noexcept {
  return {data,
          shape.dtype,
          shape.rows,
          shape.columns,
          shape.row_stride,
          shape.column_stride,
          shape.batch_rows,
          shape.batch_stride};
}

/// Checks that a span has the elements of a shape. \throws InvalidArgument
CE_API void require_elements(std::size_t count, std::int64_t rows, std::int64_t columns);

}  // namespace detail

/// A dense [rows, columns] array as a view, or one whose rows are farther apart: a Tensor, or a ConstTensor if the
/// elements are const. [count] elements are `count` rows of one column.
/// \tparam T  an element type that dtype_of knows
template <class T>
[[nodiscard]] constexpr auto tensor(T* data, std::int64_t rows, std::int64_t columns = 1,
                                    std::int64_t row_stride = contiguous) noexcept {
  return BasicTensor<detail::VoidOf<T>>{data, detail::element_dtype<T>(), rows, columns, row_stride};
}

/// The elements of the span as [count].
template <class T, std::size_t extent>
[[nodiscard]] constexpr auto tensor(std::span<T, extent> elements) noexcept {
  return tensor(elements.data(), static_cast<std::int64_t>(elements.size()));
}

/// The elements of the span as a dense [rows, columns].
/// \throws InvalidArgument if their number is not rows x columns
template <class T, std::size_t extent>
[[nodiscard]] constexpr auto tensor(std::span<T, extent> elements, std::int64_t rows, std::int64_t columns) {
  detail::require_elements(elements.size(), rows, columns);
  return tensor(elements.data(), rows, columns);
}

/// A dense [outer, classes, inner] array as rows of classes: what PyTorch calls (N, C, d1, ...), with the
/// product of d1, ... as `inner`. Row o x inner + i holds the classes of position i of item o, so that the
/// row's target is element [o, i] of a dense [outer, inner] array.
/// \throws InvalidArgument for a negative size, or more rows than 64 bits count
[[nodiscard]] CE_API Tensor class_dimension_second(void* data, DType dtype, std::int64_t outer,
                                                   std::int64_t classes, std::int64_t inner);
/// Overload that takes the dtype from the elements' type; a ConstTensor if they are const.
template <class T>
[[nodiscard]] auto class_dimension_second(T* data, std::int64_t outer, std::int64_t classes,
                                          std::int64_t inner) {
  return detail::placed(data,
                        class_dimension_second(nullptr, detail::element_dtype<T>(), outer, classes, inner));
}

/// A [batches, batch_rows, columns] view with its own strides, as rows: `logits[:, :-1, :]` of a dense [b, s, v] array
/// is batched(data, dtype, b, s - 1, v, s * v).
/// \param batch_stride  elements from one batch to the next
/// \param row_stride    elements from one row to the next inside a batch
/// \throws InvalidArgument for a negative size, or more rows than 64 bits count
[[nodiscard]] CE_API Tensor batched(void* data, DType dtype, std::int64_t batches, std::int64_t batch_rows,
                                    std::int64_t columns, std::int64_t batch_stride,
                                    std::int64_t row_stride = contiguous);
/// Overload that takes the dtype from the elements' type; a ConstTensor if they are const.
template <class T>
[[nodiscard]] auto batched(T* data, std::int64_t batches, std::int64_t batch_rows, std::int64_t columns,
                           std::int64_t batch_stride, std::int64_t row_stride = contiguous) {
  return detail::placed(data, batched(nullptr, detail::element_dtype<T>(), batches, batch_rows, columns,
                                      batch_stride, row_stride));
}

}  // namespace ce
