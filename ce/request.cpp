#include "ce/request.hpp"

#include <fmt/format.h>

#include <string>

#include "ce/base/error.hpp"

namespace ce {
namespace {

using generator::Problem;

std::string text_of(const void* pointer) { return fmt::format("{}", pointer); }

void check_dtype(std::string_view tensor, DType got, DType wanted, std::string_view why) {
  if (got != wanted)
    throw InvalidArgument(fmt::format("{}.dtype", tensor), name(got),
                          fmt::format("{} ({})", name(wanted), why));
}

/// Shape, strides and memory of one tensor by itself.
void check_tensor(std::string_view tensor, const Tensor& view, const runtime::Device& device) {
  const auto field = [&](std::string_view member) { return fmt::format("{}.{}", tensor, member); };
  if (view.rows < 0) throw InvalidArgument(field("rows"), fmt::to_string(view.rows), "0 or more");
  if (view.columns < 1) throw InvalidArgument(field("columns"), fmt::to_string(view.columns), "1 or more");
  if (view.row_step() < view.columns)
    throw InvalidArgument(field("row_stride"), fmt::to_string(view.row_stride),
                          fmt::format("at least the {} columns", view.columns));
  if (view.column_stride != 1)
    throw InvalidArgument(field("column_stride"), fmt::to_string(view.column_stride), "1 in this version");
  if (view.rows == 0) return;  // no memory to look at
  if (view.data == nullptr) throw InvalidArgument(field("data"), "null", "a pointer to device memory");
  if (reinterpret_cast<std::uintptr_t>(view.data) % static_cast<std::uintptr_t>(size_of(view.dtype)) != 0)
    throw InvalidArgument(field("data"), text_of(view.data),
                          fmt::format("an address aligned to its {}-byte elements", size_of(view.dtype)));
  switch (device.pointer_kind(view.data)) {
    case runtime::PointerKind::device:
    case runtime::PointerKind::managed: return;
    case runtime::PointerKind::host:
      throw InvalidArgument(field("data"), text_of(view.data) + " in host memory",
                            fmt::format("memory of {}", device.name()));
    case runtime::PointerKind::other_device:
      throw InvalidArgument(field("data"), text_of(view.data) + " in the memory of another device",
                            fmt::format("memory of {}", device.name()));
  }
}

void check_same_shape(std::string_view tensor, const Tensor& view, std::string_view other,
                      const Tensor& model) {
  if (view.rows != model.rows)
    throw InvalidArgument(fmt::format("{}.rows", tensor), fmt::to_string(view.rows),
                          fmt::format("the {} rows of {}", model.rows, other));
  if (view.columns != model.columns)
    throw InvalidArgument(fmt::format("{}.columns", tensor), fmt::to_string(view.columns),
                          fmt::format("the {} columns of {}", model.columns, other));
  check_dtype(tensor, view.dtype, model.dtype, fmt::format("that of {}", other));
}

/// [rows] or [1] elements, one after the other: as one column or as one row.
void check_vector(std::string_view tensor, const Tensor& view, std::int64_t count) {
  const bool column = view.rows == count && view.columns == 1 && (view.row_step() == 1 || count <= 1);
  const bool row = view.rows == 1 && view.columns == count;
  if (!column && !row)
    throw InvalidArgument(tensor,
                          fmt::format("{} x {} with row stride {}", view.rows, view.columns, view.row_step()),
                          fmt::format("{} elements, one after the other", count));
}

struct Extent {
  std::uintptr_t first, last;
};

Extent extent_of(const Tensor& view) {
  const auto first = reinterpret_cast<std::uintptr_t>(view.data);
  const std::int64_t elements = view.rows == 0 ? 0 : (view.rows - 1) * view.row_step() + view.columns;
  return {first, first + static_cast<std::uintptr_t>(elements * size_of(view.dtype))};
}

bool same_memory(const Tensor& a, const Tensor& b) {
  return a.data == b.data && a.row_step() == b.row_step();
}

void check_no_overlap(std::string_view tensor, const Tensor& view, std::string_view other,
                      const Tensor& model) {
  const Extent a = extent_of(view), b = extent_of(model);
  if (a.first < b.last && b.first < a.last)
    throw InvalidArgument(fmt::format("{}.data", tensor),
                          fmt::format("{} overlapping {}", text_of(view.data), other), "memory of its own");
}

/// The output of a matrix operation: the input itself, or apart from it.
bool is_in_place(std::string_view tensor, const Tensor& view, std::string_view other, const Tensor& model) {
  if (same_memory(view, model)) return true;
  const Extent a = extent_of(view), b = extent_of(model);
  if (a.first < b.last && b.first < a.last)
    throw InvalidArgument(
        fmt::format("{}.data", tensor), fmt::format("{} overlapping {}", text_of(view.data), other),
        fmt::format("exactly {} (same address and row stride) or memory of its own", other));
  return false;
}

generator::RowPlacement placement_of(const Tensor& view) {
  return {reinterpret_cast<std::uint64_t>(view.data), view.row_step() * size_of(view.dtype)};
}

/// What softmax and cross entropy have in common: a matrix in and, perhaps, one out.
Request bind_matrices(generator::Operation operation, std::string_view input_name, const Tensor& input,
                      std::string_view output_name, const Tensor* output, const runtime::Device& device) {
  if (!is_floating(input.dtype))
    throw InvalidArgument(fmt::format("{}.dtype", input_name), name(input.dtype), "f32, f16 or bf16");
  check_tensor(input_name, input, device);
  Request request{
      .problem = {
          .operation = operation, .dtype = input.dtype, .rows = input.rows, .columns = input.columns}};
  request.arguments.input = input.data;
  request.arguments.rows = input.rows;
  request.arguments.input_stride = input.row_step();
  if (output != nullptr) {
    check_same_shape(output_name, *output, input_name, input);
    check_tensor(output_name, *output, device);
    request.problem.in_place = is_in_place(output_name, *output, input_name, input);
    request.arguments.output = output->data;
    request.arguments.output_stride = output->row_step();
  }
  request.problem.alignment = generator::alignment_of(input.rows, placement_of(input),
                                                      placement_of(output != nullptr ? *output : input));
  return request;
}

}  // namespace

Request bind(const Softmax&, const Softmax::Tensors& tensors, const runtime::Device& device) {
  return bind_matrices(generator::Operation::softmax, "input", tensors.input, "output", &tensors.output,
                       device);
}

Request bind(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors,
             const runtime::Device& device) {
  const auto& [logits, target, loss, grad] = tensors;
  const bool gradient = grad.data != nullptr;
  if (!gradient && grad.rows != 0) throw InvalidArgument("grad.data", "null", "a pointer to device memory");
  Request request = bind_matrices(generator::Operation::cross_entropy, "logits", logits, "grad",
                                  gradient ? &grad : nullptr, device);
  check_vector("target", target, logits.rows);
  check_tensor("target", target, device);
  if (is_floating(target.dtype)) throw InvalidArgument("target.dtype", name(target.dtype), "i32 or i64");
  check_vector("loss", loss, operation.reduction == Reduction::none ? logits.rows : 1);
  check_tensor("loss", loss, device);
  if (loss.dtype != DType::f32) check_dtype("loss", loss.dtype, logits.dtype, "or f32");
  check_no_overlap("loss", loss, "logits", logits);
  check_no_overlap("loss", loss, "target", target);
  check_no_overlap("target", target, "logits", logits);
  if (gradient) {
    check_no_overlap("loss", loss, "grad", grad);
    check_no_overlap("target", target, "grad", grad);
  }

  request.problem.gradient = gradient;
  request.problem.reduction = operation.reduction;
  request.problem.target_dtype = target.dtype;
  request.problem.loss_dtype = loss.dtype;
  request.arguments.target = target.data;
  request.arguments.loss = loss.data;
  request.arguments.ignore_index = operation.ignore_index;
  return request;
}

}  // namespace ce
