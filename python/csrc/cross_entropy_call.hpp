#pragma once
/// \file
/// What a call of cross entropy is given and gives back, on one rank or on several.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ce/ce.h"
#include "python/csrc/call.hpp"
#include "python/csrc/contexts.hpp"
#include "python/csrc/tensor.hpp"

namespace ce_torch {

/// A tensor that may be given beside the logits, as one element after the other.
struct Vector {
  explicit Vector(Arguments& arguments) : tensor(arguments.optional_tensor()) {}

  /// \returns its elements; null where it is not given
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

/// The numbers of the schemas, in their order.
[[nodiscard]] inline ce_cross_entropy_options read_numbers(Arguments& arguments) {
  ce_cross_entropy_options options = CE_CROSS_ENTROPY_OPTIONS_INIT;
  options.ignore_index = arguments.integer();
  options.reduction = static_cast<ce_reduction>(arguments.integer());
  options.label_smoothing = arguments.number();
  options.z_loss = arguments.number();
  options.softcap = arguments.number();
  options.logit_scale = arguments.number();
  options.token_scaling = arguments.number();
  return options;
}

/// What both directions of cross entropy have in common. Reads its arguments in the order of the schemas: logits,
/// target and class weights; then what the direction has of its own; then read_options().
struct Call {
  static constexpr const char* name = "cross_entropy";

  explicit Call(Arguments& arguments)
      : logits_given(arguments.tensor()), target(arguments.tensor()), weight(arguments) {}

  void read_options(Arguments& arguments) {
    row_weight.emplace(arguments);
    row_scale.emplace(arguments);
    divisor.emplace(arguments);
    options = read_numbers(arguments);
  }

  /// Looks at the target, and brings class indices into a form that kernels read.
  void prepare() {
    require_same_device(target, "target", logits_given);
    class_dim = logits_given.sizes().size() < 2 ? 0 : 1;
    const ce_dtype type = target.ce_type();
    if (type == CE_DTYPE_I64 || type == CE_DTYPE_I32) {
      const std::vector<std::int64_t> expected = row_sizes();
      const auto sizes = target.sizes();
      if (!std::equal(sizes.begin(), sizes.end(), expected.begin(), expected.end()))
        refuse(Refusal::value_error, "cross_entropy: target has sizes " + text_of(sizes) + "; expected " +
                                         text_of(expected) + ", those of the logits without their classes");
      target = target.contiguous();
      indices = vector_of(target);
    } else {
      require_same_sizes(target, logits_given, name, "target");
      has_probabilities = true;
    }
  }

  /// \returns the prepared target. After the matrices that are written and the logits, to whose batches it is brought
  const ce_tensor* bind_target(RowPlan& plan) {
    if (!has_probabilities) return &indices;
    probabilities.emplace(std::move(target), "target", plan);
    return &probabilities->rows();
  }

  [[nodiscard]] RowPlan plan() const { return {.operation = name, .dim = class_dim}; }

  /// Binds what both directions may be given, after the matrices that are written and the logits.
  template <class Tensors>
  void bind_shared(Tensors& tensors, RowPlan& plan) {
    tensors.target = bind_target(plan);
    tensors.weight = weight.bind(logits_given, "weight");
    tensors.row_weight = bind_rows(*row_weight, "row_weight");
    tensors.row_scale = bind_rows(*row_scale, "row_scale");
    tensors.divisor = divisor->bind(logits_given, "divisor");
  }

  /// One element a row. \throws std::runtime_error for other sizes
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

  /// One number, or one a row. \throws std::runtime_error for other sizes
  const ce_tensor* bind_upstream(Vector& upstream) const {
    const bool is_number = upstream.tensor && upstream.tensor->elements() == 1;
    return is_number ? upstream.bind(logits_given, "upstream") : bind_rows(upstream, "upstream");
  }

  [[nodiscard]] std::int64_t rows() const {
    const auto sizes = logits_given.sizes();
    const std::int64_t classes = sizes.empty() ? 1 : sizes[class_dim];
    return classes == 0 ? 0 : logits_given.elements() / classes;
  }

  /// Sizes of what has one element a row.
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
  Vector weight;
  std::optional<Vector> row_weight, row_scale, divisor;
  std::size_t class_dim = 0;
  bool has_probabilities = false;
  std::optional<Input> probabilities;
  ce_tensor indices{};  ///< without probabilities
  ce_cross_entropy_options options = CE_CROSS_ENTROPY_OPTIONS_INIT;
};

enum class Gradient { none, fresh, in_place };

/// The gradient that a call writes, and the logits that it reads: in place the same memory.
class GradientRows {
 public:
  /// \param place  of the gradient, which outlives it: the logits themselves in place
  GradientRows(const Call& call, const Tensor& place, bool in_place, RowPlan& plan)
      : grad_(place, in_place ? "logits" : "grad", plan,
              in_place ? Output::Content::is_read : Output::Content::is_overwritten) {
    if (!in_place) logits_.emplace(call.logits_given.share(), "logits", plan);
  }
  [[nodiscard]] const ce_tensor* logits() const { return logits_ ? &logits_->rows() : &grad_.rows(); }
  [[nodiscard]] const ce_tensor* grad() const { return &grad_.rows(); }
  /// Once the call is enqueued.
  void finish() const { grad_.finish(); }

 private:
  Output grad_;
  std::optional<Input> logits_;  ///< not in place
};

/// Where a backward writes its gradient.
inline Tensor place_of_gradient(const Call& call, Gradient gradient) {
  return gradient == Gradient::in_place ? call.logits_given.share() : Tensor::empty_like(call.logits_given);
}

/// What stands for an output that was not asked for.
enum class Absent {
  undefined,  ///< Python sees None
  empty,      ///< no elements: what a schema and fake tensors can say
};

/// Whether logsumexp, z-loss, argmax, hit, log-probability and entropy are in the schema.
enum class Rest { is_said, is_left_out };

/// Nothing in place of what was not asked for.
struct Outputs {
  Tensor loss;
  std::optional<Tensor> grad, z_loss, lse, argmax, hit, logprob, entropy;
};

/// Outputs beside the loss that a call asks for.
struct Wanted {
  bool z_loss = false, lse = false, argmax = false, hit = false, logprob = false, entropy = false;

  /// A flag for each.
  [[nodiscard]] static Wanted read(Arguments& arguments) {
    const bool z_loss = arguments.flag(), lse = arguments.flag();
    return with_rest(z_loss, lse, arguments);
  }
  /// The lse always is, and has no flag.
  [[nodiscard]] static Wanted read_with_lse(Arguments& arguments) {
    return with_rest(arguments.flag(), true, arguments);
  }

 private:
  [[nodiscard]] static Wanted with_rest(bool z_loss, bool lse, Arguments& arguments) {
    // In the order of the flags: so a list in braces is evaluated.
    return {z_loss, lse, arguments.flag(), arguments.flag(), arguments.flag(), arguments.flag()};
  }
};

/// What tensors of the C interface point to, for each output beside the loss.
using Views = std::array<ce_tensor, 6>;

/// Makes the outputs that are wanted, where the operation is told of them.
template <class Tensors>
void give_wanted(const Call& call, const Wanted& wanted, std::int32_t loss_type, Tensors& tensors,
                 Views& views, Outputs& outputs) {
  const auto give = [](const ce_tensor*& field, ce_tensor& view, std::optional<Tensor>& output, Tensor made) {
    view = vector_of(made);
    field = &view;
    output = std::move(made);
  };
  const std::int32_t f32 = aoti_torch_dtype_float32();
  if (wanted.z_loss) give(tensors.z_loss_out, views[0], outputs.z_loss, call.empty_loss(loss_type));
  if (wanted.lse) give(tensors.lse, views[1], outputs.lse, call.empty_rows(f32));
  if (wanted.argmax)
    give(tensors.argmax, views[2], outputs.argmax, call.empty_rows(aoti_torch_dtype_int64()));
  if (wanted.hit) give(tensors.hit, views[3], outputs.hit, call.empty_rows(aoti_torch_dtype_bool()));
  if (wanted.logprob) give(tensors.logprob, views[4], outputs.logprob, call.empty_rows(f32));
  if (wanted.entropy) give(tensors.entropy, views[5], outputs.entropy, call.empty_rows(f32));
}

/// An output, or what stands for one of that dtype.
inline Tensor given_or(std::optional<Tensor>& output, Absent absent, std::int32_t dtype, const Tensor& like) {
  if (output) return std::move(*output);
  return absent == Absent::empty ? Tensor::empty(0, dtype, like) : Tensor::undefined();
}

/// Loss, and gradient where there is one, then z-loss, logsumexp, argmax, hit, log-probability and entropy.
template <Absent absent>
void give_back_all(StableIValue* stack, Outputs& made) {
  const Tensor like = made.loss.share();
  Tensor z_loss = given_or(made.z_loss, absent, like.dtype(), like);
  Tensor lse = given_or(made.lse, absent, aoti_torch_dtype_float32(), like);
  Tensor argmax = given_or(made.argmax, absent, aoti_torch_dtype_int64(), like);
  Tensor hit = given_or(made.hit, absent, aoti_torch_dtype_bool(), like);
  Tensor logprob = given_or(made.logprob, absent, aoti_torch_dtype_float32(), like);
  Tensor entropy = given_or(made.entropy, absent, aoti_torch_dtype_float32(), like);
  if (made.grad)
    give_back(stack, made.loss, *made.grad, z_loss, lse, argmax, hit, logprob, entropy);
  else
    give_back(stack, made.loss, z_loss, lse, argmax, hit, logprob, entropy);
}

/// What read_numbers() reads, in a schema.
inline constexpr const char* schema_of_numbers =
    ", int ignore_index, int reduction, float label_smoothing, float z_loss, float softcap, float "
    "logit_scale, "
    "float token_scaling";

/// Parts of schemas, in the order in which Call and Wanted read what they name.
struct Schema {
  const std::string
      read = "Tensor logits, Tensor target, Tensor? weight",
      upstream = ", Tensor? upstream",
      options = std::string(", Tensor? row_weight, Tensor? row_scale, Tensor? divisor") + schema_of_numbers,
      f32_loss = options + ", bool f32_loss",
      rest = "Tensor z_loss, Tensor lse, Tensor argmax, Tensor hit, Tensor logprob, Tensor entropy";
};

}  // namespace ce_torch
