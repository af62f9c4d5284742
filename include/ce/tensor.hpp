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

/// A row stride that means "as long as a row": the rows lie one after the other.
inline constexpr std::int64_t contiguous = std::numeric_limits<std::int64_t>::min();

/// A view of [rows, columns] elements in device memory (or host memory, on the host device). Owns nothing.
///
/// Tensor{} is no tensor: an optional one that is not given, an error where the operation needs it. A call without rows
/// says so by rows = 0 and the columns or the dtype that they would have; `data` may be null then.
///
/// Row r starts r x row_stride elements after `data`; where rows lie in batches,
/// (r / batch_rows) x batch_stride + (r % batch_rows) x row_stride. No two elements may share memory. The
/// stride of a dimension of size 1 is never used. Kernels are fastest where column_stride is 1.
///
/// Tensor and ConstTensor are its two kinds; a Tensor becomes a ConstTensor wherever one is expected. tensor() makes
/// either from a pointer, whose type says the dtype.
template <class Void>
requires std::is_void_v<Void>
struct [[gnu::may_alias]] BasicTensor {
  Void* data = nullptr;  ///< the first element, aligned to the size of an element
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 1;  ///< 1 or more; 0 where softmax or its gradient has nothing to compute
  std::int64_t row_stride = contiguous;  ///< elements from one row to the next
  std::int64_t column_stride = 1;        ///< elements from one column to the next
  std::int64_t batch_rows = 0;           ///< rows of a batch, a divisor of `rows`; 0: all are one batch
  std::int64_t batch_stride = 0;         ///< elements from one batch to the next; only with batch_rows

  friend bool operator==(const BasicTensor&, const BasicTensor&) = default;

  /// The same elements, to be read only.
  template <class ConstVoid>
  requires(std::is_same_v<ConstVoid, const void> && !std::is_const_v<Void>) constexpr
  operator BasicTensor<ConstVoid>() const noexcept {  // NOLINT(google-explicit-constructor)
    return {data, dtype, rows, columns, row_stride, column_stride, batch_rows, batch_stride};
  }

  /// Elements from one row to the next, `contiguous` resolved.
  [[nodiscard]] constexpr std::int64_t row_step() const noexcept {
    return row_stride != contiguous ? row_stride : columns == 1 ? 1 : columns * column_stride;
  }
};

/// What an operation may write.
using Tensor = BasicTensor<void>;
/// What an operation only reads.
using ConstTensor = BasicTensor<const void>;

namespace detail {

template <class T>
using VoidOf = std::conditional_t<std::is_const_v<T>, const void, void>;

/// The shape and dtype of another view, of these elements.
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

/// \throws InvalidArgument
CE_API void require_elements(std::size_t count, std::int64_t rows, std::int64_t columns);

}  // namespace detail

/// A dense [rows, columns] array as a view, or one with rows that are farther apart: a Tensor, or a ConstTensor where the
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
/// \throws InvalidArgument where these are not rows x columns
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
/// The same, with the dtype of the elements' type; a ConstTensor where they are const.
template <class T>
[[nodiscard]] auto class_dimension_second(T* data, std::int64_t outer, std::int64_t classes,
                                          std::int64_t inner) {
  return detail::placed(data,
                        class_dimension_second(nullptr, detail::element_dtype<T>(), outer, classes, inner));
}

/// A [batches, batch_rows, columns] view with strides of its own, as rows: `logits[:, :-1, :]` of a dense
/// [b, s, v] array is batched(data, dtype, b, s - 1, v, s * v).
/// \param batch_stride  elements from one batch to the next
/// \param row_stride    elements from one row to the next inside a batch
/// \throws InvalidArgument for a negative size, or more rows than 64 bits count
[[nodiscard]] CE_API Tensor batched(void* data, DType dtype, std::int64_t batches, std::int64_t batch_rows,
                                    std::int64_t columns, std::int64_t batch_stride,
                                    std::int64_t row_stride = contiguous);
/// The same, with the dtype of the elements' type; a ConstTensor where they are const.
template <class T>
[[nodiscard]] auto batched(T* data, std::int64_t batches, std::int64_t batch_rows, std::int64_t columns,
                           std::int64_t batch_stride, std::int64_t row_stride = contiguous) {
  return detail::placed(data, batched(nullptr, detail::element_dtype<T>(), batches, batch_rows, columns,
                                      batch_stride, row_stride));
}

}  // namespace ce
