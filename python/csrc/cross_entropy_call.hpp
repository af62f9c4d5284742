#pragma once
/// \file
/// Inputs and outputs of a call of cross entropy, on one rank or on several.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c/cross_entropy_fields.hpp"
#include "ce/ce.h"
#include "python/csrc/call.hpp"
#include "python/csrc/contexts.hpp"
#include "python/csrc/outputs.hpp"
#include "python/csrc/tensor.hpp"

namespace ce_torch {

/// An optional tensor beside the logits, as a sequence of elements.
struct Vector {
  Vector() = default;  ///< stands for a tensor that is not given
  explicit Vector(Arguments& arguments) : tensor(arguments.optional_tensor()) {}

  /// \returns its elements; null if it is not given
  const ce_tensor* bind(const Tensor& logits, const char* argument) {
    if (!tensor) return nullptr;
    require_same_device(*tensor, argument, logits);
    tensor = tensor->contiguous();
    view = vector_of(*tensor);
    return &view;
  }

  std::optional<Tensor> tensor;
  ce_tensor view{};
};

/// Reads only the numbers that torch's cross entropy also has.
[[nodiscard]] inline ce_cross_entropy_options read_numbers_of_torch(Arguments& arguments) {
  ce_cross_entropy_options options = CE_CROSS_ENTROPY_OPTIONS_INIT;
  options.ignore_index = arguments.integer();
  options.reduction = static_cast<ce_reduction>(arguments.integer());
  options.label_smoothing = arguments.number();
  return options;
}

/// Reads the numbers of the schemas, in their order.
[[nodiscard]] inline ce_cross_entropy_options read_numbers(Arguments& arguments) {
  ce_cross_entropy_options options = CE_CROSS_ENTROPY_OPTIONS_INIT;
  options.ignore_index = arguments.integer();
  options.reduction = static_cast<ce_reduction>(arguments.integer());
  for (const ce::c::AmountField& amount : ce::c::amount_fields)
    options.*amount.given_to_forward = arguments.number();
  return options;
}

/// State shared by forward and backward. Reads its arguments in the order of the schemas: logits, target and class
/// weights; then the arguments of the direction; then read_options().
struct Call {
  static constexpr const char* name = "cross_entropy";

  explicit Call(Arguments& arguments)
      : logits_given(arguments.tensor()), target(arguments.tensor()), weight(arguments) {}

  /// A call with only these tensors, and options that are set later.
  Call(Tensor&& logits, Tensor&& classes) : logits_given(std::move(logits)), target(std::move(classes)) {}

  void read_options(Arguments& arguments) {
    row_weight = Vector(arguments);
    row_scale = Vector(arguments);
    divisor = Vector(arguments);
    options = read_numbers(arguments);
  }

  /// Checks the target, and brings class indices into a form that kernels read.
  void prepare() {
    require_same_device(target, "target", logits_given);
    class_dim = logits_given.sizes().size() < 2 ? 0 : 1;
    const ce_dtype type = target.ce_type();
    if (type == CE_DTYPE_I64 || type == CE_DTYPE_I32) {
      const std::vector<std::int64_t> expected = row_sizes();
      const auto sizes = target.sizes();
      if (!std::equal(sizes.begin(), sizes.end(), expected.begin(), expected.end()))
        refuse(Refusal::value_error, "cross_entropy: target has sizes " + text_of(sizes) + "; expected " +
                                         text_of(expected) +
                                         ", the sizes of the logits without their classes");
      target = target.contiguous();
      indices = vector_of(target);
    } else {
      require_same_sizes(target, logits_given, name, "target");
      has_probabilities = true;
    }
  }

  /// Called after the matrices to write and the logits are bound: the target follows their batches. \returns the
  /// prepared target
  const ce_tensor* bind_target(RowPlan& plan) {
    if (!has_probabilities) return &indices;
    probabilities.emplace(std::move(target), "target", plan);
    return &probabilities->rows();
  }

  [[nodiscard]] RowPlan plan() const { return {.operation = name, .dim = class_dim}; }

  /// Binds the inputs that both directions accept, after the matrices to write and the logits.
  template <class Tensors>
  void bind_shared(Tensors& tensors, RowPlan& plan) {
    tensors.target = bind_target(plan);
    tensors.weight = weight.bind(logits_given, "weight");
    tensors.row_weight = bind_rows(row_weight, "row_weight");
    tensors.row_scale = bind_rows(row_scale, "row_scale");
    tensors.divisor = divisor.bind(logits_given, "divisor");
  }

  /// Binds one element a row. \throws std::runtime_error for other sizes
  const ce_tensor* bind_rows(Vector& rows, const char* argument) const {
    if (rows.tensor) {
      const std::vector<std::int64_t> expected = row_sizes();
      const auto sizes = rows.tensor->sizes();
      if (!std::equal(sizes.begin(), sizes.end(), expected.begin(), expected.end()))
        refuse(Refusal::value_error, std::string() + name + ": " + argument + " has sizes " + text_of(sizes) +
                                         "; expected " + text_of(expected) + ", one for each row");
    }
    return rows.bind(logits_given, argument);
  }

  /// Binds one number, or one a row. \throws std::runtime_error for other sizes
  const ce_tensor* bind_upstream(Vector& upstream) const {
    const bool is_number = upstream.tensor && upstream.tensor->elements() == 1;
    return is_number ? upstream.bind(logits_given, "upstream") : bind_rows(upstream, "upstream");
  }

  [[nodiscard]] std::int64_t rows() const {
    const auto sizes = logits_given.sizes();
    const std::int64_t classes = sizes.empty() ? 1 : sizes[class_dim];
    return classes == 0 ? 0 : logits_given.elements() / classes;
  }

  /// The sizes of a tensor with one element a row.
  [[nodiscard]] std::vector<std::int64_t> row_sizes() const {
    std::vector<std::int64_t> sizes(logits_given.sizes().begin(), logits_given.sizes().end());
    if (!sizes.empty()) sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(class_dim));
    return sizes;
  }
  [[nodiscard]] Tensor empty_rows(std::int32_t dtype) const {
    return Tensor::empty(row_sizes(), dtype, logits_given);
  }
  [[nodiscard]] Tensor empty_loss(std::int32_t dtype) const {
    return options.reduction == CE_REDUCTION_NONE ? empty_rows(dtype)
                                                  : Tensor::empty_scalar(dtype, logits_given);
  }

  Tensor logits_given, target;
  Vector weight, row_weight, row_scale, divisor;
  std::size_t class_dim = 0;
  bool has_probabilities = false;
  std::optional<Input> probabilities;
  ce_tensor indices{};  ///< unset for probabilities
  ce_cross_entropy_options options = CE_CROSS_ENTROPY_OPTIONS_INIT;
};

enum class Gradient { none, fresh, in_place };

/// The gradient that a call writes and the logits that it reads; both share memory if the gradient is written in place.
class GradientRows {
 public:
  /// \param grad  receives the gradient and must outlive this object: the logits themselves if in_place
  GradientRows(const Call& call, const Tensor& grad, bool in_place, RowPlan& plan)
      : grad_(grad, in_place ? "logits" : "grad", plan,
              in_place ? Output::Content::is_read : Output::Content::is_overwritten) {
    if (!in_place) logits_.emplace(call.logits_given.share(), "logits", plan);
  }
  [[nodiscard]] const ce_tensor* logits() const { return logits_ ? &logits_->rows() : &grad_.rows(); }
  [[nodiscard]] const ce_tensor* grad() const { return &grad_.rows(); }
  /// Called once the call is enqueued.
  void finish() const { grad_.finish(); }

 private:
  Output grad_;
  std::optional<Input> logits_;  ///< unset if in place
};

/// The tensor to which a backward writes its gradient.
inline Tensor memory_of_gradient(const Call& call, Gradient gradient) {
  return gradient == Gradient::in_place ? call.logits_given.share() : Tensor::empty_like(call.logits_given);
}

/// Makes the wanted outputs, and sets them in the operation's tensors.
template <class Tensors>
void give_wanted(const Call& call, const Wanted& wanted, std::int32_t loss_type, Tensors& tensors,
                 Views& views, Outputs& outputs) {
  give_wanted(wanted, tensors, views, outputs, [&](const OutputField& output) {
    const std::int32_t dtype = dtype_of(output, loss_type);
    return output.kind == OutputField::Kind::of_losses ? call.empty_loss(dtype) : call.empty_rows(dtype);
  });
}

/// The schema of the numbers that read_numbers() reads.
[[nodiscard]] inline std::string schema_of_numbers() {
  std::string schema = ", int ignore_index, int reduction";
  for (const ce::c::AmountField& amount : ce::c::amount_fields)
    schema += ", float " + std::string(amount.name);
  return schema;
}

/// The schema of the numbers that read_numbers_of_torch() reads. Defaults make a call cheaper: an omitted number costs
/// less than a given one.
[[nodiscard]] inline std::string schema_of_numbers_of_torch() {
  const ce_cross_entropy_options defaults = CE_CROSS_ENTROPY_OPTIONS_INIT;
  return ", int ignore_index=" + std::to_string(defaults.ignore_index) +
         ", int reduction=" + std::to_string(defaults.reduction) +
         ", float label_smoothing=" + std::to_string(defaults.label_smoothing);
}

/// Pieces of schemas, in the order in which Call reads their arguments.
struct Schema {
  const std::string read = "Tensor logits, Tensor target, Tensor? weight", upstream = ", Tensor? upstream",
                    options =
                        ", Tensor? row_weight, Tensor? row_scale, Tensor? divisor" + schema_of_numbers(),
                    f32_loss = options + ", bool f32_loss";
};

}  // namespace ce_torch
