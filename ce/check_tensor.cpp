#include "ce/check_tensor.hpp"

#include <fmt/format.h>

#include <limits>
#include <string>
#include <utility>

#include "ce/error.hpp"
#include "ce/row_layout.hpp"

namespace ce {
namespace {

std::string text_of(const void* pointer) { return fmt::format("{}", pointer); }

std::string field(std::string_view name, std::string_view member) {
  return fmt::format("{}.{}", name, member);
}

/// Whether the tensor is of the usual kind: contiguous rows at equal distances, and few enough for 64 bits. Its sizes
/// and strides are then valid. Spares a warm call the divisions of the checks below.
bool is_plain(const ConstTensor& tensor) {
  constexpr std::int64_t most_rows = std::int64_t{1} << 31, longest_row = std::int64_t{1} << 28;
  const std::int64_t step = tensor.row_stride != contiguous ? tensor.row_stride : tensor.columns;
  return tensor.batch_rows == 0 && tensor.batch_stride == 0 && tensor.column_stride == 1 &&
         tensor.rows >= 0 && tensor.rows <= most_rows && tensor.columns >= 1 && step >= tensor.columns &&
         step <= longest_row;
}

void check_sizes(std::string_view name, const ConstTensor& tensor) {
  if (tensor.rows < 0) throw InvalidArgument(field(name, "rows"), fmt::to_string(tensor.rows), "0 or more");
  if (tensor.columns < 1)
    throw InvalidArgument(field(name, "columns"), fmt::to_string(tensor.columns), "1 or more");
  if (tensor.batch_rows < 0)
    throw InvalidArgument(field(name, "batch_rows"), fmt::to_string(tensor.batch_rows), "0 or more");
  if (tensor.batch_rows > 0 && tensor.rows % tensor.batch_rows != 0)
    throw InvalidArgument(field(name, "batch_rows"), fmt::to_string(tensor.batch_rows),
                          fmt::format("a divisor of the {} rows", tensor.rows));
  if (tensor.batch_rows == 0 && tensor.batch_stride != 0 && tensor.rows > 0)
    throw InvalidArgument(field(name, "batch_stride"), fmt::to_string(tensor.batch_stride),
                          "0 where batch_rows is 0");
}

/// Rejects elements that overlap, and distances that 64 bits do not hold.
void check_strides(std::string_view name, const ConstTensor& tensor) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  struct Dimension {
    std::string_view stride_name;
    std::int64_t size, stride;
  };
  const auto too_far = [&](std::string_view member, std::int64_t value) {
    return InvalidArgument(field(name, member), fmt::to_string(value),
                           "a value for which byte offsets fit into 64 bits");
  };
  if (tensor.columns > 1) {  // row_step() multiplies these where the rows are contiguous
    if (tensor.column_stride < 1)
      throw InvalidArgument(field(name, "column_stride"), fmt::to_string(tensor.column_stride), "1 or more");
    if (tensor.column_stride > most / tensor.columns) throw too_far("column_stride", tensor.column_stride);
  }
  const bool batches = tensor.batch_rows > 0;
  std::array<Dimension, 3> dimensions{{
      {"column_stride", tensor.columns, tensor.column_stride},
      {"row_stride", batches ? tensor.batch_rows : tensor.rows, tensor.row_step()},
      {"batch_stride", batches ? tensor.rows / tensor.batch_rows : 1, tensor.batch_stride},
  }};
  for (const std::size_t i : {0, 1, 0})
    if (dimensions[i + 1].stride < dimensions[i].stride) std::swap(dimensions[i], dimensions[i + 1]);
  // Dimensions from the smallest stride to the largest: each stride must be longer than all smaller dimensions
  // together.
  std::int64_t reach = 1;
  for (const auto& [stride_name, size, stride] : dimensions) {
    if (size <= 1) continue;
    if (stride < reach) {
      const bool of_whole_rows =
          stride_name == "row_stride" && tensor.column_stride == 1 && tensor.columns > 1;
      throw InvalidArgument(field(name, stride_name), fmt::to_string(stride),
                            of_whole_rows
                                ? fmt::format("at least the {} columns", tensor.columns)
                                : fmt::format("at least {}, so that no two elements share memory", reach));
    }
    if (stride > (most / size_of(tensor.dtype) - reach) / (size - 1)) throw too_far(stride_name, stride);
    reach += (size - 1) * stride;
  }
}

bool is_aligned(const ConstTensor& tensor) {
  const auto size = static_cast<std::uintptr_t>(size_of(tensor.dtype));  // a power of two
  return (reinterpret_cast<std::uintptr_t>(tensor.data) & (size - 1)) == 0;
}

void check_memory(std::string_view name, const ConstTensor& tensor, const runtime::Device& device) {
  if (tensor.data == nullptr) refuse_null(name);
  if (!is_aligned(tensor))
    throw InvalidArgument(field(name, "data"), text_of(tensor.data),
                          fmt::format("an address aligned to its {}-byte elements", size_of(tensor.dtype)));
  switch (device.pointer_kind(tensor.data)) {
    case runtime::PointerKind::device:
    case runtime::PointerKind::managed: return;
    case runtime::PointerKind::host:
      throw InvalidArgument(field(name, "data"), text_of(tensor.data) + " in host memory",
                            fmt::format("memory of {}", device.name()));
    case runtime::PointerKind::other_device:
      throw InvalidArgument(field(name, "data"), text_of(tensor.data) + " in the memory of another device",
                            fmt::format("memory of {}", device.name()));
  }
}

}  // namespace

std::string text_of(DType dtype) { return dtype > DType::u8 ? number_of(dtype) : std::string(name(dtype)); }

void refuse_null(std::string_view name) {
  throw InvalidArgument(field(name, "data"), "null", "a pointer to device memory");
}

void refuse_missing(std::string_view name, std::string_view expected) {
  throw InvalidArgument(name, "not given", expected);
}

void check_tensor(std::string_view name, const ConstTensor& tensor, const runtime::Device& device) {
  if (!is_plain(tensor)) {
    check_sizes(name, tensor);
    check_strides(name, tensor);
  }
  if (tensor.rows <= 0) return;
  const bool usual = tensor.data != nullptr && is_aligned(tensor) &&
                     device.pointer_kind(tensor.data) == runtime::PointerKind::device;
  if (!usual) check_memory(name, tensor, device);
}

void check_dtype(std::string_view name, const ConstTensor& tensor, DType wanted, std::string_view why) {
  if (tensor.dtype != wanted)
    throw InvalidArgument(field(name, "dtype"), text_of(tensor.dtype),
                          fmt::format("{} ({})", ce::name(wanted), why));
}

void check_f32_or(std::string_view name, const ConstTensor& tensor, DType own, std::string_view whose) {
  if (tensor.dtype != DType::f32)
    check_dtype(name, tensor, own, fmt::format("the dtype of {}, or f32", whose));
}

void check_same_shape(std::string_view name, const ConstTensor& tensor, std::string_view other,
                      const ConstTensor& model) {
  if (tensor.rows != model.rows) {
    if (is_missing(tensor, model.rows))
      refuse_missing(name, fmt::format("{} x {} elements, like {}", model.rows, model.columns, other));
    if (is_missing(model, tensor.rows)) refuse_missing(other, fmt::format("rows like those of {}", name));
    throw InvalidArgument(field(name, "rows"), fmt::to_string(tensor.rows),
                          fmt::format("the {} rows of {}", model.rows, other));
  }
  if (tensor.columns != model.columns)
    throw InvalidArgument(field(name, "columns"), fmt::to_string(tensor.columns),
                          fmt::format("the {} columns of {}", model.columns, other));
  if (tensor.dtype != model.dtype)
    check_dtype(name, tensor, model.dtype, fmt::format("the dtype of {}", other));
}

bool is_vector(const ConstTensor& tensor, std::int64_t count) {
  if (tensor.rows == 1 && tensor.columns == count) return row_layout(tensor).column == 1;
  if (tensor.rows != count || tensor.columns != 1) return false;
  const RowLayout layout = row_layout(tensor);
  return count == 0 || (layout.row == 1 && layout.batch_rows == 0);
}

std::string text_of_view(const ConstTensor& tensor) {
  std::string text = fmt::format("{} x {} with row stride {} and column stride {}", tensor.rows,
                                 tensor.columns, tensor.row_step(), tensor.column_stride);
  if (tensor.batch_rows > 0)
    text += fmt::format(", in batches of {} rows, {} apart", tensor.batch_rows, tensor.batch_stride);
  return text;
}

std::string text_of_count(std::int64_t elements) {
  return fmt::format("{} element{}", elements, elements == 1 ? "" : "s");
}

void refuse_vector(std::string_view name, const ConstTensor& tensor, std::int64_t count) {
  const std::string expected = text_of_count(count) + (count > 1 ? ", one after the other" : "");
  if (is_missing(tensor, count)) refuse_missing(name, expected);
  throw InvalidArgument(name, text_of_view(tensor), expected);
}

void CallMemory::refuse(std::string_view name, const ConstTensor& tensor, std::string_view other) {
  throw InvalidArgument(field(name, "data"), fmt::format("{} overlapping {}", text_of(tensor.data), other),
                        "memory of its own");
}

}  // namespace ce
