#include "ce/tensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "ce/error.hpp"

namespace ce {
namespace {

std::int64_t product(std::string_view first_name, std::int64_t first, std::string_view second_name,
                     std::int64_t second) {
  if (first < 0) throw InvalidArgument(first_name, fmt::to_string(first), "0 or more");
  if (second < 0) throw InvalidArgument(second_name, fmt::to_string(second), "0 or more");
  if (second != 0 && first > std::numeric_limits<std::int64_t>::max() / second)
    throw InvalidArgument(first_name, fmt::to_string(first),
                          fmt::format("a value whose product with {} fits into 64 bits", second));
  return first * second;
}

}  // namespace

void detail::require_elements(std::size_t count, std::int64_t rows, std::int64_t columns) {
  if (static_cast<std::uint64_t>(product("rows", rows, "columns", columns)) != count)
    throw InvalidArgument("elements", fmt::format("{} of them", count),
                          fmt::format("{} x {} elements", rows, columns));
}

Tensor class_dimension_second(void* data, DType dtype, std::int64_t outer, std::int64_t classes,
                              std::int64_t inner) {
  static_cast<void>(product("classes", classes, "inner", inner));
  return {.data = data,
          .dtype = dtype,
          .rows = product("outer", outer, "inner", inner),
          .columns = classes,
          .row_stride = 1,
          .column_stride = std::max<std::int64_t>(inner, 1),  // as in PyTorch if there are no rows
          .batch_rows = inner,
          .batch_stride = classes * inner};
}

Tensor batched(void* data, DType dtype, std::int64_t batches, std::int64_t batch_rows, std::int64_t columns,
               std::int64_t batch_stride, std::int64_t row_stride) {
  return {.data = data,
          .dtype = dtype,
          .rows = product("batches", batches, "batch_rows", batch_rows),
          .columns = columns,
          .row_stride = row_stride,
          .batch_rows = batch_rows,
          .batch_stride = batch_stride};
}

}  // namespace ce
