#include "ce/request.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>

#include "ce/error.hpp"
#include "ce/matrices.hpp"

namespace ce {
namespace {

using generator::Problem;

/// Of softmax over no classes: there is nothing to compute. \returns nothing where there are classes
std::optional<Request> bind_no_classes(generator::Operation operation,
                                       std::initializer_list<Matrix> matrices) {
  const Matrix& first = *matrices.begin();
  const ConstTensor& model = *first.tensor;
  if (model.columns != 0 || model.rows < 0 || !is_floating(model.dtype)) return std::nullopt;
  for (const Matrix& matrix : matrices) check_same_shape(matrix.name, *matrix.tensor, first.name, model);
  return Request{.problem = {.operation = operation, .dtype = model.dtype, .rows = 0, .columns = 0}};
}

template <class Tensors>
Request bind_forward(generator::Operation operation, const Tensors& tensors, const runtime::Device& device) {
  const Matrix input{"input", &tensors.input}, output{"output", view_of(tensors.output)};
  require("input", tensors.input);
  if (const std::optional<Request> empty = bind_no_classes(operation, {input, output})) return *empty;
  CallMemory memory;
  Request request = bind_matrices(operation, input, {}, output, device, memory);
  set_addresses(tensors, request.arguments);
  return request;
}

template <class Tensors>
Request bind_backward(generator::Operation operation, const Tensors& tensors, const runtime::Device& device) {
  const Matrix output_grad{"output_grad", &tensors.output_grad}, output{"output", &tensors.output},
      input_grad{"input_grad", view_of(tensors.input_grad)};
  require("output_grad", tensors.output_grad);
  if (const std::optional<Request> empty = bind_no_classes(operation, {output_grad, output, input_grad}))
    return *empty;
  CallMemory memory;
  Request request = bind_matrices(operation, output_grad, output, input_grad, device, memory);
  set_addresses(tensors, request.arguments);
  return request;
}

// ---- cross entropy -------------------------------------------------------------------------------------

/// The options that change what the kernel computes, checked.
template <class CrossEntropyOrBackward>
void bind_options(const CrossEntropyOrBackward& operation, Request& request) {
  Problem& problem = request.problem;
  Arguments& arguments = request.arguments;
  const auto bind = [&](const generator::CrossEntropyOption& option, float amount) {
    if (!option.takes(amount)) throw InvalidArgument(option.name, fmt::to_string(amount), option.expected);
    if (option.of_classes && problem.probabilities && amount != option.neutral)
      throw InvalidArgument(option.name, fmt::to_string(amount), "0 where target holds probabilities");
    problem.*option.field = amount != option.neutral;
    arguments.*option.amount = amount;
  };
  constexpr const auto& options = generator::cross_entropy_options;
  const auto bind_all = [&]<std::size_t... i>(std::index_sequence<i...>) {
    (bind(options[i], operation.*option_fields<CrossEntropyOrBackward>[i]), ...);
  };
  bind_all(std::make_index_sequence<options.size()>());
  if (operation.reduction > Reduction::sum)
    throw InvalidArgument("reduction", number_of(operation.reduction), "none, mean or sum");
  problem.reduction = operation.reduction;
  arguments.ignore_index = operation.ignore_index;
}

/// The vectors of a call: checked one by one, each against all that came before.
struct Vectors {
  const runtime::Device& device;
  CallMemory& memory;

  void bind(std::string_view name, const ConstTensor& tensor, std::int64_t count, bool written) {
    check_tensor(name, tensor, device);
    check_vector(name, tensor, count);
    memory.add(name, tensor, written);
  }
  /// An optional output of a certain dtype. \returns whether it was given
  bool bind_output(std::string_view name, const ConstTensor& tensor, std::int64_t count, DType dtype,
                   std::string_view why) {
    if (!is_given(name, tensor)) return false;
    check_dtype(name, tensor, dtype, why);
    bind(name, tensor, count, true);
    return true;
  }
};

/// Matrices and target. A target of the logits' kind is probabilities.
template <class Tensors>
Request bind_targets(generator::Operation operation, const Tensors& tensors, bool gradient,
                     Vectors& vectors) {
  const ConstTensor &logits = tensors.logits, &target = tensors.target;
  if (is_missing(target, logits.rows))
    refuse_missing("target", "class indices (i32 or i64), or probabilities (as logits)");
  if (is_missing(logits, target.rows))
    refuse_missing("logits", "rows in f32, f16 or bf16, one for each target");
  require("logits", logits);
  const bool probabilities = is_floating(target.dtype);
  if (!probabilities && target.dtype != DType::i32 && target.dtype != DType::i64)
    throw InvalidArgument("target.dtype", text_of(target.dtype),
                          "i32 or i64 (class indices), or that of logits (probabilities)");
  if (probabilities && is_vector(target, logits.rows) && logits.rows * logits.columns > logits.rows)
    throw InvalidArgument(
        "target.dtype", text_of(target.dtype),
        fmt::format("i32 or i64, as it has one element for each row (class indices); probabilities "
                    "are {} x {}",
                    logits.rows, logits.columns));
  Request request =
      bind_matrices(operation, {"logits", &logits}, {"target", probabilities ? &target : nullptr},
                    {"grad", gradient ? view_of(tensors.grad) : nullptr}, vectors.device, vectors.memory);
  request.problem.gradient = gradient;
  request.problem.probabilities = probabilities;
  if (!probabilities) {
    vectors.bind("target", target, logits.rows, false);
    request.problem.target_dtype = target.dtype;
  }
  return request;
}

void bind_weight(const ConstTensor& weight, Vectors& vectors, Request& request) {
  if (!is_given("weight", weight)) return;
  check_f32_or("weight", weight, request.problem.dtype);
  vectors.bind("weight", weight, request.problem.columns, false);
  generator::Problem& problem = request.problem;
  problem.weights = true;
  problem.weight_dtype = weight.dtype;
  // Where rows are aligned, kernels take 16 bytes of weights at a time.
  const bool aligned = reinterpret_cast<std::uintptr_t>(weight.data) % 16 == 0;
  if (generator::reads_all_weights(problem) && !problem.strided && !aligned &&
      problem.alignment == generator::Alignment::vector)
    problem.alignment = generator::Alignment::shifted;
}

/// The optional inputs in f32.
template <class Tensors>
void bind_inputs(const Tensors& tensors, Vectors& vectors, Request& request) {
  Problem& problem = request.problem;
  const auto all = inputs_of(tensors);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const generator::CrossEntropyInput& input = generator::cross_entropy_inputs[i];
    if (all[i] == nullptr || !is_given(input.tensor, *all[i])) continue;
    // Without rows nobody can tell whether grad is given.
    if (!input.is_possible(problem) && (!input.of_gradient || problem.gradient || problem.rows > 0))
      throw InvalidArgument(std::string(input.tensor) + ".data", "set",
                            fmt::format("null but with {}", input.needed()));
    check_dtype(input.tensor, *all[i], DType::f32, "always");
    vectors.bind(input.tensor, *all[i], input.elements(problem), false);
    problem.*input.field = true;
  }
}

/// One number, or one for each row.
void bind_upstream(const ConstTensor& upstream, Vectors& vectors, Request& request) {
  Problem& problem = request.problem;
  check_tensor("upstream", upstream, vectors.device);
  const bool of_rows = is_vector(upstream, problem.rows);
  if (!of_rows && !is_vector(upstream, 1))
    throw InvalidArgument("upstream", text_of_view(upstream),
                          fmt::format("1 element, or one for each of the {} rows", problem.rows));
  vectors.memory.add("upstream", upstream, false);
  problem.upstream = of_rows ? generator::Upstream::rows : generator::Upstream::scalar;
}

}  // namespace

Request bind(const Softmax&, const Softmax::Tensors& tensors, const runtime::Device& device) {
  return bind_forward(generator::Operation::softmax, tensors, device);
}
Request bind(const LogSoftmax&, const LogSoftmax::Tensors& tensors, const runtime::Device& device) {
  return bind_forward(generator::Operation::log_softmax, tensors, device);
}
Request bind(const SoftmaxBackward&, const SoftmaxBackward::Tensors& tensors, const runtime::Device& device) {
  return bind_backward(generator::Operation::softmax_backward, tensors, device);
}
Request bind(const LogSoftmaxBackward&, const LogSoftmaxBackward::Tensors& tensors,
             const runtime::Device& device) {
  return bind_backward(generator::Operation::log_softmax_backward, tensors, device);
}

Request bind(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors,
             const runtime::Device& device) {
  CallMemory memory;
  Vectors vectors{device, memory};
  const bool gradient = is_given("grad", tensors.grad);
  Request request = bind_targets(generator::Operation::cross_entropy, tensors, gradient, vectors);
  bind_options(operation, request);
  Problem& problem = request.problem;
  bind_weight(tensors.weight, vectors, request);

  const std::int64_t losses = operation.reduction == Reduction::none ? problem.rows : 1;
  check_f32_or("loss", tensors.loss, problem.dtype);
  vectors.bind("loss", tensors.loss, losses, true);
  problem.loss_dtype = tensors.loss.dtype;
  if (is_given("upstream", tensors.upstream)) {
    // Without rows nobody can tell whether grad is given.
    if (!gradient && problem.rows > 0)
      throw InvalidArgument("upstream.data", "set", "null where there is no grad");
    check_dtype("upstream", tensors.upstream, problem.loss_dtype, "that of loss");
    bind_upstream(tensors.upstream, vectors, request);
  }

  if (!problem.z_loss && is_given("z_loss_out", tensors.z_loss_out))
    throw InvalidArgument("z_loss_out.data", "set", "null where the factor z_loss is 0");
  for (const auto& [name, tensor] : {std::pair{"hit", &tensors.hit}, {"logprob", &tensors.logprob}})
    if (problem.probabilities && is_given(name, *tensor))
      throw InvalidArgument(fmt::format("{}.data", name), "set", "null where target holds probabilities");
  bind_inputs(tensors, vectors, request);
  for (const auto& [name, tensor] : {std::pair{"lse", &tensors.lse},
                                     {"entropy", &tensors.entropy},
                                     {"argmax", &tensors.argmax},
                                     {"hit", &tensors.hit}})
    if (problem.given_lse && is_given(name, *tensor))
      throw InvalidArgument(fmt::format("{}.data", name), "set", "null with given_lse");
  problem.z_loss_out =
      vectors.bind_output("z_loss_out", tensors.z_loss_out, losses, problem.loss_dtype, "that of loss");
  constexpr std::string_view always = "always";
  problem.lse_out = vectors.bind_output("lse", tensors.lse, problem.rows, DType::f32, always);
  problem.logprob_out = vectors.bind_output("logprob", tensors.logprob, problem.rows, DType::f32, always);
  problem.entropy_out = vectors.bind_output("entropy", tensors.entropy, problem.rows, DType::f32, always);
  problem.argmax_out = vectors.bind_output("argmax", tensors.argmax, problem.rows, DType::i64, always);
  problem.hit_out = vectors.bind_output("hit", tensors.hit, problem.rows, DType::u8, always);
  problem = generator::canonical(problem);
  set_addresses(tensors, request.arguments);
  return request;
}

Request bind(const CrossEntropyBackward& operation, const CrossEntropyBackward::Tensors& tensors,
             const runtime::Device& device) {
  CallMemory memory;
  Vectors vectors{device, memory};
  Request request = bind_targets(generator::Operation::cross_entropy_backward, tensors, true, vectors);
  bind_options(operation, request);
  Problem& problem = request.problem;
  bind_weight(tensors.weight, vectors, request);
  check_dtype("lse", tensors.lse, DType::f32, "always");
  vectors.bind("lse", tensors.lse, problem.rows, false);
  if (is_given("upstream", tensors.upstream)) {
    check_f32_or("upstream", tensors.upstream, problem.dtype);
    bind_upstream(tensors.upstream, vectors, request);
    problem.loss_dtype = tensors.upstream.dtype;
  }
  bind_inputs(tensors, vectors, request);
  if (problem.token_scaling && !problem.saved_logprob)
    refuse_missing("logprob", "with token_scaling, what CrossEntropy wrote");
  if (generator::reads_entropy(problem)) {
    check_dtype("entropy", tensors.entropy, DType::f32, "with entropy_upstream");
    vectors.bind("entropy", tensors.entropy, problem.rows, false);
  } else if (is_given("entropy", tensors.entropy)) {
    throw InvalidArgument("entropy.data", "set", "null but with entropy_upstream");
  }
  problem = generator::canonical(problem);
  set_addresses(tensors, request.arguments);
  return request;
}

}  // namespace ce
