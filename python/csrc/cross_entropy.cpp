// Cross entropy on one rank, and its backward.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ce/ce.h"
#include "python/csrc/call.hpp"
#include "python/csrc/contexts.hpp"
#include "python/csrc/cross_entropy_call.hpp"
#include "python/csrc/operators.hpp"
#include "python/csrc/tensor.hpp"

namespace ce_torch {
namespace {

/// Whether the schema has flags for outputs beside the loss.
enum class Rest { is_said, is_left_out };

/// Runs the forward operation of a call whose arguments have been read.
Outputs run_forward(Call& call, Gradient gradient, Vector upstream, bool f32_loss, const Wanted& wanted) {
  call.prepare();

  const Tensor& like = call.logits_given;
  const std::int32_t loss_type = f32_loss ? aoti_torch_dtype_float32() : like.dtype();
  Outputs outputs{.loss = call.empty_loss(loss_type)};
  ce_cross_entropy_tensors tensors = CE_CROSS_ENTROPY_TENSORS_INIT;
  RowPlan plan = call.plan();
  std::optional<GradientRows> rows;
  std::optional<Input> logits;
  if (gradient == Gradient::none) {
    logits.emplace(like.share(), "logits", plan);
    tensors.logits = &logits->rows();
  } else {
    const bool in_place = gradient == Gradient::in_place;
    if (!in_place) outputs.grad = Tensor::empty_like(like);
    rows.emplace(call, in_place ? like : *outputs.grad, in_place, plan);
    tensors.logits = rows->logits();
    tensors.grad = rows->grad();
  }
  const ce_tensor loss = vector_of(outputs.loss);
  tensors.loss = &loss;
  call.bind_shared(tensors, plan);
  tensors.upstream = call.bind_upstream(upstream);

  Views views{};
  give_wanted(call, wanted, loss_type, tensors, views, outputs);
  require(ce_cross_entropy(context_of(like.device()), &call.options, &tensors, stream_of(like), nullptr));
  if (rows) rows->finish();
  return outputs;
}

/// Runs the forward operation.
Outputs forward(Arguments& arguments, Gradient gradient, Rest rest) {
  Call call(arguments);
  Vector upstream;
  if (gradient != Gradient::none) upstream = Vector(arguments);
  call.read_options(arguments);
  const bool f32_loss = arguments.flag();
  return run_forward(call, gradient, std::move(upstream), f32_loss,
                     rest == Rest::is_said ? read_wanted_beside_lse(arguments) : Wanted{});
}

/// Runs the forward operation on logits, class indices, whether the loss is float32, and torch's numbers.
Outputs forward_of_classes(Arguments& arguments, Gradient gradient) {
  Tensor logits = arguments.tensor(), classes = arguments.tensor();
  Call call(std::move(logits), std::move(classes));
  const bool f32_loss = arguments.flag();
  call.options = read_numbers_of_torch(arguments);
  if (call.logits_given.elements() == 0)
    refuse(Refusal::value_error, "cross_entropy: logits has no elements; expected rows and classes");
  return run_forward(call, gradient, {}, f32_loss, {});
}

/// ... -> (Tensor loss, and the other outputs)
template <Absent absent>
void cross_entropy(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Outputs made = forward(arguments, Gradient::none, Rest::is_said);
  give_back_all<ce::CrossEntropy>(stack, made, absent);
}

/// ... -> Tensor loss
void cross_entropy_loss(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Outputs made = forward(arguments, Gradient::none, Rest::is_left_out);
  give_back(stack, made.loss);
}

/// ... -> (Tensor loss, Tensor grad)
void cross_entropy_loss_and_grad(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Outputs made = forward(arguments, Gradient::fresh, Rest::is_left_out);
  give_back(stack, made.loss, *made.grad);
}

/// ... -> Tensor loss
void cross_entropy_of_classes(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Outputs made = forward_of_classes(arguments, Gradient::none);
  give_back(stack, made.loss);
}

/// ... -> (Tensor loss, Tensor grad)
void cross_entropy_of_classes_and_grad(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Outputs made = forward_of_classes(arguments, Gradient::fresh);
  give_back(stack, made.loss, *made.grad);
}

/// ... -> (Tensor loss, Tensor grad, and the other outputs)
template <Absent absent>
void cross_entropy_with_grad(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Outputs made = forward(arguments, Gradient::fresh, Rest::is_said);
  give_back_all<ce::CrossEntropy>(stack, made, absent);
}

/// ... -> (Tensor loss, and the other outputs); the gradient replaces the logits
template <Absent absent>
void cross_entropy_with_grad_in_place(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Outputs made = forward(arguments, Gradient::in_place, Rest::is_said);
  give_back_all<ce::CrossEntropy>(stack, made, absent);
}

/// ... -> (Tensor loss, Tensor z_loss, Tensor logprob), computed from logsumexps
void cross_entropy_from_lse(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Call call(arguments);
  const Tensor lse = arguments.tensor().contiguous();
  call.read_options(arguments);
  const bool f32_loss = arguments.flag(), wants_z_loss = arguments.flag();
  call.prepare();

  const Tensor& like = call.logits_given;
  const std::int32_t loss_type = f32_loss ? aoti_torch_dtype_float32() : like.dtype();
  RowPlan plan = call.plan();
  const Input logits(like.share(), "logits", plan);
  Tensor loss = call.empty_loss(loss_type), logprob = call.empty_rows(aoti_torch_dtype_float32());
  Tensor z_loss = wants_z_loss ? call.empty_loss(loss_type) : Tensor::empty(0, loss_type, like);
  const ce_tensor loss_view = vector_of(loss), z_loss_view = vector_of(z_loss),
                  logprob_rows = vector_of(logprob), lse_rows = vector_of(lse);
  ce_cross_entropy_tensors tensors = CE_CROSS_ENTROPY_TENSORS_INIT;
  tensors.logits = &logits.rows();
  tensors.loss = &loss_view;
  tensors.logprob = &logprob_rows;
  tensors.given_lse = &lse_rows;
  if (wants_z_loss) tensors.z_loss_out = &z_loss_view;
  call.bind_shared(tensors, plan);
  require(ce_cross_entropy(context_of(like.device()), &call.options, &tensors, stream_of(like), nullptr));
  give_back(stack, loss, z_loss, logprob);
}

/// \returns the gradient; in place, it is the logits themselves
Tensor backward(Arguments& arguments, Gradient gradient) {
  Call call(arguments);
  const Tensor lse = arguments.tensor().contiguous();
  Vector upstream(arguments), logprob(arguments), lse_low(arguments), entropy(arguments),
      entropy_upstream(arguments), lse_upstream(arguments);
  call.read_options(arguments);
  call.prepare();

  const Tensor& like = call.logits_given;
  Tensor grad = memory_of_gradient(call, gradient);
  RowPlan plan = call.plan();
  const GradientRows rows(call, grad, gradient == Gradient::in_place, plan);
  ce_cross_entropy_backward_tensors tensors = CE_CROSS_ENTROPY_BACKWARD_TENSORS_INIT;
  tensors.logits = rows.logits();
  const ce_tensor lse_rows = vector_of(lse);
  call.bind_shared(tensors, plan);
  tensors.lse = &lse_rows;
  tensors.upstream = call.bind_upstream(upstream);
  tensors.logprob = call.bind_rows(logprob, "logprob");
  tensors.lse_low = call.bind_rows(lse_low, "lse_low");
  tensors.entropy = call.bind_rows(entropy, "entropy");
  tensors.entropy_upstream = call.bind_rows(entropy_upstream, "entropy_upstream");
  tensors.lse_upstream = call.bind_rows(lse_upstream, "lse_upstream");
  tensors.grad = rows.grad();
  const ce_cross_entropy_backward_options options = ce_cross_entropy_backward_of(&call.options);
  require(ce_cross_entropy_backward(context_of(like.device()), &options, &tensors, stream_of(like), nullptr));
  rows.finish();
  return grad;
}

/// ... -> Tensor grad
void cross_entropy_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  Tensor grad = backward(arguments, Gradient::fresh);
  give_back(stack, grad);
}

/// ... -> (); the gradient replaces the logits
void cross_entropy_backward_in_place(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  static_cast<void>(backward(arguments, Gradient::in_place));
}

/// (Tensor(a!) grad, Tensor upstream) -> ()
void scale_gradient(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* name = "scale_gradient_";
  Arguments arguments(stack);
  const Tensor grad = arguments.tensor(), upstream = arguments.tensor();
  require_same_device(upstream, "upstream", grad);
  if (upstream.elements() != 1)
    refuse(Refusal::value_error, std::string() + name + ": upstream has sizes " + text_of(upstream.sizes()) +
                                     "; expected one element");
  if (grad.elements() == 0) return;
  const ce_tensor factor = vector_of(upstream);
  const auto scale = [&](const ce_tensor& elements) {
    require(ce_scale_gradient(context_of(grad.device()), &elements, &factor, stream_of(grad)));
  };
  if (grad.is_dense()) return scale(vector_of(grad));
  if (const std::optional<ce_tensor> elements = elements_of(grad)) return scale(*elements);
  if (grad.overlaps_itself())
    refuse(Refusal::value_error,
           std::string() + name +
               ": grad has elements that share memory; expected memory of its own for each element");
  hint_at_copy(name, "grad");
  const Tensor copy = grad.copy_in({});
  scale(vector_of(copy));
  grad.overwrite(copy);
}

}  // namespace

std::vector<Operator> cross_entropy_operators() {
  const auto& [read, upstream, options, f32_loss] = Schema{};
  const std::string wanted = f32_loss + schema_of_flags_beside_lse(),
                    rest = schema_of_outputs<ce::CrossEntropy>() + ")",
                    written = "Tensor(a!) logits, Tensor target, Tensor? weight";
  const std::string backward =
      " logits, Tensor target, Tensor? weight, Tensor lse" + upstream +
      ", Tensor? logprob, Tensor? lse_low, Tensor? entropy, Tensor? entropy_upstream, Tensor? lse_upstream" +
      options;

  return {
      {"cross_entropy", read + wanted, "(Tensor loss" + rest, cross_entropy<Absent::empty>,
       cross_entropy<Absent::undefined>},
      {"cross_entropy_loss", read + f32_loss, "Tensor", cross_entropy_loss, cross_entropy_loss},
      {"cross_entropy_loss_and_grad", read + upstream + f32_loss, "(Tensor loss, Tensor grad)",
       cross_entropy_loss_and_grad, cross_entropy_loss_and_grad},
      {"cross_entropy_with_grad", read + upstream + wanted, "(Tensor loss, Tensor grad" + rest,
       cross_entropy_with_grad<Absent::empty>, cross_entropy_with_grad<Absent::undefined>},
      {"cross_entropy_with_grad_", written + upstream + wanted, "(Tensor loss" + rest,
       cross_entropy_with_grad_in_place<Absent::empty>, cross_entropy_with_grad_in_place<Absent::undefined>},
      {"cross_entropy_from_lse", read + ", Tensor lse" + f32_loss + ", bool return_z_loss",
       "(Tensor loss, Tensor z_loss, Tensor logprob)", cross_entropy_from_lse, cross_entropy_from_lse},
      {"cross_entropy_backward", "Tensor" + backward, "Tensor", cross_entropy_backward,
       cross_entropy_backward},
      {"cross_entropy_backward_", "Tensor(a!)" + backward, "()", cross_entropy_backward_in_place,
       cross_entropy_backward_in_place},
      {"scale_gradient_", "Tensor(a!) grad, Tensor upstream", "()", scale_gradient, scale_gradient},
  };
}

std::vector<Operator> eager_cross_entropy_operators() {
  const std::string arguments = "Tensor logits, Tensor target, bool f32_loss" + schema_of_numbers_of_torch();
  return {
      {"cross_entropy_of_classes", arguments, "Tensor", nullptr, cross_entropy_of_classes},
      {"cross_entropy_of_classes_and_grad", arguments, "(Tensor loss, Tensor grad)", nullptr,
       cross_entropy_of_classes_and_grad},
  };
}

}  // namespace ce_torch
