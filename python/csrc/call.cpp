#include "python/csrc/call.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "python/csrc/contexts.hpp"
#include "python/csrc/torch_memory.hpp"

namespace ce_torch {

ce_stream stream_of(const Tensor& tensor) {
  return tensor.device() == host ? nullptr : current_stream(tensor.device());
}

void require_same_device(const Tensor& tensor, const char* name, const Tensor& first) {
  if (tensor.device() != first.device())
    refuse(Refusal::value_error, std::string() + name + " is on another device than the first tensor");
}

std::size_t dimension(std::int64_t dim, const Tensor& tensor, const char* operation) {
  const auto dimensions = static_cast<std::int64_t>(std::max<std::size_t>(1, tensor.sizes().size()));
  if (dim < -dimensions || dim >= dimensions)
    refuse(Refusal::index_error, std::string() + operation + ": dim is " + std::to_string(dim) +
                                     "; expected " + std::to_string(-dimensions) + " to " +
                                     std::to_string(dimensions - 1));
  return static_cast<std::size_t>(dim < 0 ? dim + dimensions : dim);
}

Input::Input(Tensor&& given, const char* argument, RowPlan& plan) : tensor_(std::move(given)) {
  const auto agrees = [&plan](const std::optional<ce_tensor>& rows) {
    return rows && (rows->batch_rows == 0 || plan.batched == nullptr || rows->batch_rows == plan.batch_rows);
  };
  std::optional<ce_tensor> known = rows_of(tensor_, plan.dim, plan.order);
  if (!agrees(known)) {
    hint_at_copy(plan.operation, argument);
    // A copy that is dense in the order of the matrix with batches has the same batches, or none.
    tensor_ = tensor_.copy_in(plan.batched != nullptr ? plan.batched->memory_order() : plan.order);
    known = rows_of(tensor_, plan.dim, plan.order);
  }
  rows_ = known.value();
  plan.add(tensor_, rows_);
}

Output::Output(const Tensor& matrix, const char* argument, RowPlan& plan, Content content) : matrix_(matrix) {
  std::optional<ce_tensor> known = rows_of(matrix, plan.dim);
  if (!known && plan.any_order) {
    plan.order = matrix.memory_order();
    known = rows_of(matrix, plan.dim, plan.order);
    if (!known) plan.order.clear();
  }
  if (!known) {
    if (matrix.overlaps_itself())
      refuse(Refusal::value_error,
             std::string() + plan.operation + ": " + argument +
                 " has elements that share memory; expected memory of its own for each element");
    hint_at_copy(plan.operation, argument);
    scratch_ = content == Content::is_read ? matrix.copy_in({}) : matrix.empty_in({});
    known = rows_of(*scratch_, plan.dim);
  }
  rows_ = known.value();
  plan.add(scratch_ ? *scratch_ : matrix, rows_);
}

void Output::finish() const {
  if (scratch_) matrix_.overwrite(*scratch_);
}

std::string text_of(std::span<const std::int64_t> sizes) {
  std::string text;
  for (const std::int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

void require_same_sizes(const Tensor& tensor, const Tensor& like, const char* operation,
                        const char* argument) {
  const auto a = tensor.sizes(), b = like.sizes();
  if (!std::equal(a.begin(), a.end(), b.begin(), b.end()))
    refuse(Refusal::value_error, std::string() + operation + ": " + argument + " has sizes " + text_of(a) +
                                     "; expected " + text_of(b));
}

}  // namespace ce_torch
