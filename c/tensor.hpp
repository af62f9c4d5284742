#pragma once
/// \file
/// Conversions between ce_tensor and Tensor.

#include <string_view>

#include "ce/ce.h"
#include "ce/tensor.hpp"

namespace ce::c {

[[noreturn]] void refuse_dtype(std::string_view name, ce_dtype dtype);

/// \param name  the tensor's name, for messages
/// \throws InvalidArgument for a value that is no dtype
[[nodiscard]] inline DType dtype_from(std::string_view name, ce_dtype dtype) {
  if (dtype < CE_DTYPE_F32 || dtype > CE_DTYPE_U8) refuse_dtype(name, dtype);
  return static_cast<DType>(dtype);
}

/// Null means that the tensor is not given. \throws InvalidArgument for a value that is no dtype
[[nodiscard]] inline Tensor tensor_from(std::string_view name, const ce_tensor* given) {
  if (given == nullptr) return {};
  // Fields are listed by name, so that a field that is added to one of the two does not compile until it is added here.
  const auto& [data, dtype, rows, columns, row_stride, column_stride, batch_rows, batch_stride] = *given;
  // Without rows and data only this tells a tensor of one f32 column from one that is not given.
  const bool is_empty_column = rows == 0 && columns == 1 && row_stride == contiguous;
  const Tensor tensor{.data = data,
                      .dtype = dtype_from(name, dtype),
                      .rows = rows,
                      .columns = columns,
                      .row_stride = is_empty_column ? 1 : row_stride,
                      .column_stride = column_stride,
                      .batch_rows = batch_rows,
                      .batch_stride = batch_stride};
  [[maybe_unused]] const auto& [f1, f2, f3, f4, f5, f6, f7, f8] = tensor;
  return tensor;
}

}  // namespace ce::c
