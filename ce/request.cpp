#include "ce/request.hpp"

#include <fmt/format.h>

#include <algorithm>
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

/// The Request for softmax over no classes: nothing to compute. \returns nothing if there are classes
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

/// The checked options that change the kernel's code.
template <class CrossEntropyOrBackward>
void bind_options(const CrossEntropyOrBackward& operation, Request& request) {
  Problem& problem = request.problem;
  Arguments& arguments = request.arguments;
  generator::for_each_row<generator::cross_entropy_options>([&](const auto& option) {
    const float amount = operation.*option.template of<CrossEntropyOrBackward>();
    if (!option.takes(amount)) throw InvalidArgument(option.name, fmt::to_string(amount), option.expected);
    if (option.of_classes && problem.probabilities && amount != option.neutral)
      throw InvalidArgument(option.name, fmt::to_string(amount),
                            fmt::format("{}, because target holds probabilities", option.neutral));
    problem.has.*option.field = amount != option.neutral;
    arguments.amounts[generator::index_of(option)] = amount;
  });
  if (operation.reduction > Reduction::sum)
    throw InvalidArgument("reduction", number_of(operation.reduction), "none, mean or sum");
  problem.reduction = operation.reduction;
  arguments.ignore_index = operation.ignore_index;
}

/// Checks the vectors of a call one by one, each against all earlier tensors.
struct Vectors {
  const runtime::Device& device;
  CallMemory& memory;

  void bind(std::string_view name, const ConstTensor& tensor, std::int64_t count, bool written) {
    check_tensor(name, tensor, device);
    check_vector(name, tensor, count);
    memory.add(name, tensor, written);
  }
};

/// Null if the tensor is not written.
template <class Tensors>
const ConstTensor* gradient_of([[maybe_unused]] const Tensors& tensors, [[maybe_unused]] bool given) {
  if constexpr (requires { tensors.grad; })
    if (given) return view_of(tensors.grad);
  return nullptr;
}

/// Checks matrices and target. A target with the logits' dtype is probabilities.
template <class Tensors>
Request bind_targets(generator::Operation operation, const Tensors& tensors, bool gradient,
                     Vectors& vectors) {
  const ConstTensor &logits = tensors.logits, &target = tensors.target;
  if (is_missing(target, logits.rows))
    refuse_missing("target", "class indices (i32 or i64), or probabilities (in the dtype of logits)");
  if (is_missing(logits, target.rows))
    refuse_missing("logits", "rows in f32, f16 or bf16, one for each target");
  require("logits", logits);
  const bool probabilities = is_floating(target.dtype);
  if (!probabilities && target.dtype != DType::i32 && target.dtype != DType::i64)
    throw InvalidArgument("target.dtype", text_of(target.dtype),
                          "i32 or i64 (class indices), or the dtype of logits (probabilities)");
  if (probabilities && is_vector(target, logits.rows) && logits.rows * logits.columns > logits.rows)
    throw InvalidArgument(
        "target.dtype", text_of(target.dtype),
        fmt::format(
            "i32 or i64 (class indices), because it has one element for each row; probabilities are {} x {}",
            logits.rows, logits.columns));
  Request request =
      bind_matrices(operation, {"logits", &logits}, {"target", probabilities ? &target : nullptr},
                    {"grad", gradient_of(tensors, gradient)}, vectors.device, vectors.memory);
  request.problem.gradient = gradient;
  request.problem.probabilities = probabilities;
  if (!probabilities) {
    vectors.bind("target", target, logits.rows, false);
    request.problem.target_dtype = target.dtype;
  }
  return request;
}

/// \param classes  number of classes with a weight
void bind_weight(const ConstTensor& weight, std::int64_t classes, Vectors& vectors, Request& request) {
  if (!is_given("weight", weight)) return;
  check_f32_or("weight", weight, request.problem.dtype);
  vectors.bind("weight", weight, classes, false);
  generator::Problem& problem = request.problem;
  problem.weights = true;
  problem.weight_dtype = weight.dtype;
  // If rows are aligned, kernels load 16 bytes of weights at a time.
  const auto before = static_cast<std::uintptr_t>(request.arguments.first_class * size_of(weight.dtype));
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(weight.data) + before;
  const bool aligned = first % 16 == 0;
  if (generator::reads_all_weights(problem) && !problem.strided && !aligned &&
      problem.alignment != generator::Alignment::element)
    problem.alignment = generator::Alignment::shifted;
}

/// Checks the optional inputs in f32.
template <class Tensors>
void bind_inputs(const Tensors& tensors, Vectors& vectors, Request& request) {
  Problem& problem = request.problem;
  for (const generator::CrossEntropyInput& input : generator::cross_entropy_inputs) {
    const auto member = input.member.of<Tensors>();
    if (member == nullptr || !is_given(input.tensor, tensors.*member)) continue;
    // Without rows a null pointer does not show whether grad is given.
    if (!input.is_possible(problem) && (!input.of_gradient || problem.gradient || problem.rows > 0))
      throw InvalidArgument(std::string(input.tensor) + ".data", "set",
                            fmt::format("null, except with {}", input.needed()));
    check_dtype(input.tensor, tensors.*member, DType::f32, "always");
    vectors.bind(input.tensor, tensors.*member, input.elements(problem), false);
    problem.has.*input.field = true;
  }
}

/// Whether the vector has one element, or one for each row.
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

void bind_loss(const Tensor& loss, Vectors& vectors, Request& request) {
  Problem& problem = request.problem;
  check_f32_or("loss", loss, problem.dtype);
  vectors.bind("loss", loss, problem.reduction == Reduction::none ? problem.rows : 1, true);
  problem.loss_dtype = loss.dtype;
}

/// Why such a problem cannot have the output; empty if it can.
std::string why_null(const generator::CrossEntropyOutput& output, const Problem& problem) {
  if (output.needs != nullptr && !(problem.has.*output.needs))
    return fmt::format("null, because the factor {} is 0", generator::option_of(output.needs).name);
  if (output.of_classes && problem.probabilities) return "null, because target holds probabilities";
  if (output.of_all_classes && problem.has.given_lse) return "null, because given_lse is given";
  return {};
}

/// Checks the optional outputs.
template <class Tensors>
void bind_outputs(const Tensors& tensors, Vectors& vectors, Request& request) {
  using Kind = generator::CrossEntropyOutput::Kind;
  Problem& problem = request.problem;
  for (const generator::CrossEntropyOutput& output : generator::cross_entropy_outputs) {
    const auto member = output.member.of<Tensors>();
    if (member == nullptr || !is_given(output.tensor, tensors.*member)) continue;
    const Tensor& tensor = tensors.*member;
    if (const std::string why = why_null(output, problem); !why.empty())
      throw InvalidArgument(std::string(output.tensor) + ".data", "set", why);
    check_dtype(output.tensor, tensor, output.dtype_of(problem),
                output.kind == Kind::of_losses ? "the dtype of loss" : "always");
    vectors.bind(output.tensor, tensor, output.elements(problem), true);
    problem.has.*output.field = true;
  }
}

// ---- ranks that share the classes: helpers -------------------------------------------------------------

/// Checks a contiguous [rows, words].
void bind_statistics(std::string_view name, const ConstTensor& tensor, std::int64_t rows, std::int64_t words,
                     bool written, Vectors& vectors) {
  check_dtype(name, tensor, DType::f32, "always");
  check_tensor(name, tensor, vectors.device);
  // Without rows, the outputs, and so the number of words, are unknown.
  if (tensor.rows != rows || (rows > 0 && tensor.columns != words) || tensor.column_stride != 1 ||
      tensor.batch_rows != 0 || (rows > 1 && tensor.row_step() != words))
    throw InvalidArgument(std::string(name), text_of_view(tensor),
                          fmt::format("{} rows of {} words without gaps", rows, words));
  vectors.memory.add(name, tensor, written);
}

void require_classes(std::int64_t classes) {
  if (classes < 1 || classes > generator::most_columns)
    throw InvalidArgument("classes", fmt::to_string(classes),
                          fmt::format("1 to {}", generator::most_columns));
}

/// Checks logits, target and weights of a rank.
template <class Operation, class Tensors>
Request bind_shard(generator::Operation kind, const Operation& operation, const Tensors& tensors,
                   Vectors& vectors) {
  Request request = bind_targets(kind, tensors, generator::always_has_gradient(kind), vectors);
  const std::int64_t columns = request.problem.columns;
  require_classes(operation.classes);
  if (operation.first_class < 0 || operation.first_class > operation.classes - columns)
    throw InvalidArgument(
        "first_class", fmt::to_string(operation.first_class),
        fmt::format("0 to {}, because there are {} classes, and {} of them are on this rank",
                    std::max<std::int64_t>(operation.classes - columns, 0), operation.classes, columns));
  request.arguments.first_class = operation.first_class;
  request.arguments.classes = operation.classes;
  bind_options(operation.options, request);
  bind_weight(tensors.weight, operation.classes, vectors, request);
  return request;
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
  bind_weight(tensors.weight, problem.columns, vectors, request);

  bind_loss(tensors.loss, vectors, request);
  if (is_given("upstream", tensors.upstream)) {
    // Without rows a null pointer does not show whether grad is given.
    if (!gradient && problem.rows > 0)
      throw InvalidArgument("upstream.data", "set", "null, because there is no grad");
    check_dtype("upstream", tensors.upstream, problem.loss_dtype, "the dtype of loss");
    bind_upstream(tensors.upstream, vectors, request);
  }

  bind_inputs(tensors, vectors, request);
  bind_outputs(tensors, vectors, request);
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
  bind_weight(tensors.weight, problem.columns, vectors, request);
  check_dtype("lse", tensors.lse, DType::f32, "always");
  vectors.bind("lse", tensors.lse, problem.rows, false);
  if (is_given("upstream", tensors.upstream)) {
    check_f32_or("upstream", tensors.upstream, problem.dtype);
    bind_upstream(tensors.upstream, vectors, request);
    problem.loss_dtype = tensors.upstream.dtype;
  }
  bind_inputs(tensors, vectors, request);
  if (const auto* option = generator::option_without_saved_input(problem); option != nullptr) {
    const std::string_view saved = generator::input_of(option->saved).tensor;
    refuse_missing(saved,
                   fmt::format("the {} that CrossEntropy wrote, because {} is set", saved, option->name));
  }
  if (generator::reads_entropy(problem)) {
    check_dtype("entropy", tensors.entropy, DType::f32, "with entropy_upstream");
    vectors.bind("entropy", tensors.entropy, problem.rows, false);
  } else if (is_given("entropy", tensors.entropy)) {
    throw InvalidArgument("entropy.data", "set", "null, except with entropy_upstream");
  }
  problem = generator::canonical(problem);
  set_addresses(tensors, request.arguments);
  return request;
}

// ---- ranks that share the classes ----------------------------------------------------------------------

std::int64_t CrossEntropyShard::words(DType logits, bool probabilities) const {
  return generator::statistics_words({.operation = generator::Operation::cross_entropy_shard,
                                      .dtype = logits,
                                      .probabilities = probabilities,
                                      .has = {.smoothing = options.label_smoothing != 0,
                                              .softcap = options.softcap != 0,
                                              .entropy_out = entropy,
                                              .argmax_out = argmax}});
}

Request bind(const CrossEntropyShard& operation, const CrossEntropyShard::Tensors& tensors,
             const runtime::Device& device) {
  CallMemory memory;
  Vectors vectors{device, memory};
  Request request = bind_shard(generator::Operation::cross_entropy_shard, operation, tensors, vectors);
  Problem& problem = request.problem;
  generator::leave_out_results(problem);
  if (!generator::reads_all_weights(problem)) problem.weights = false;
  if (!problem.weights) problem.weight_dtype = DType::f32;
  problem.has.lse_out = operation.lse;
  problem.has.argmax_out = operation.argmax;
  problem.has.entropy_out = operation.entropy;
  request.arguments.statistics_words = generator::statistics_words(problem);
  bind_statistics("statistics", tensors.statistics, problem.rows, request.arguments.statistics_words, true,
                  vectors);
  bind_inputs(tensors, vectors, request);
  set_addresses(tensors, request.arguments);
  return request;
}

Request bind(const CrossEntropyMerge& operation, const CrossEntropyMerge::Tensors& tensors,
             const runtime::Device& device) {
  CallMemory memory;
  Vectors vectors{device, memory};
  require_classes(operation.classes);
  if (operation.ranks < 1) throw InvalidArgument("ranks", fmt::to_string(operation.ranks), "1 or more");
  if (!is_floating(operation.logits))
    throw InvalidArgument("logits", text_of(operation.logits), "f32, f16 or bf16");
  require("statistics", tensors.statistics);
  const std::int64_t rows = tensors.statistics.rows / operation.ranks;
  Request request{.problem = {.operation = generator::Operation::cross_entropy_merge,
                              .dtype = operation.logits,
                              .probabilities = operation.probabilities,
                              .rows = rows,
                              .columns = operation.ranks}};
  Problem& problem = request.problem;
  Arguments& arguments = request.arguments;
  arguments.rows = rows;
  arguments.ranks = operation.ranks;
  arguments.classes = operation.classes;
  bind_options(operation.options, request);
  if (operation.probabilities) {
    if (is_given("target", tensors.target))
      throw InvalidArgument("target.data", "set", "null, because target holds probabilities");
  } else {
    if (is_missing(tensors.target, rows)) refuse_missing("target", "class indices (i32 or i64)");
    if (tensors.target.dtype != DType::i32 && tensors.target.dtype != DType::i64)
      throw InvalidArgument("target.dtype", text_of(tensors.target.dtype), "i32 or i64");
    vectors.bind("target", tensors.target, rows, false);
    problem.target_dtype = tensors.target.dtype;
  }
  bind_weight(tensors.weight, operation.classes, vectors, request);
  bind_loss(tensors.loss, vectors, request);
  bind_inputs(tensors, vectors, request);
  bind_outputs(tensors, vectors, request);
  arguments.statistics_words = generator::statistics_words(problem);
  bind_statistics("statistics", tensors.statistics, rows * operation.ranks, arguments.statistics_words, false,
                  vectors);
  if (is_given("merged", tensors.merged))
    bind_statistics("merged", tensors.merged, rows, arguments.statistics_words, true, vectors);
  set_addresses(tensors, arguments);
  return request;
}

Request bind(const CrossEntropyShardBackward& operation, const CrossEntropyShardBackward::Tensors& tensors,
             const runtime::Device& device) {
  CallMemory memory;
  Vectors vectors{device, memory};
  Request request =
      bind_shard(generator::Operation::cross_entropy_shard_backward, operation, tensors, vectors);
  Problem& problem = request.problem;
  if (is_given("upstream", tensors.upstream)) {
    check_f32_or("upstream", tensors.upstream, problem.dtype);
    bind_upstream(tensors.upstream, vectors, request);
    problem.loss_dtype = tensors.upstream.dtype;
  }
  bind_inputs(tensors, vectors, request);
  // Words that only results need come after those of the gradient.
  Problem more = problem;
  more.has.argmax_out = true;
  std::int64_t words = generator::statistics_words(problem);
  const std::int64_t given = tensors.statistics.columns, with_argmax = generator::statistics_words(more);
  more.has.entropy_out = true;
  if (given == with_argmax || given == generator::statistics_words(more)) words = given;
  more.has.argmax_out = false;
  if (given == generator::statistics_words(more)) words = given;
  request.arguments.statistics_words = words;
  bind_statistics("statistics", tensors.statistics, problem.rows, words, false, vectors);
  problem = generator::canonical(problem);
  set_addresses(tensors, request.arguments);
  return request;
}

Request bind(const CrossEntropyExchange& operation, const CrossEntropyExchange::Tensors& tensors,
             const runtime::Device& device) {
  CallMemory memory;
  Vectors vectors{device, memory};
  Request request = bind_shard(generator::Operation::cross_entropy_exchange, operation, tensors, vectors);
  Problem& problem = request.problem;
  Arguments& arguments = request.arguments;
  bind_loss(tensors.loss, vectors, request);
  if (is_given("upstream", tensors.upstream)) {
    check_dtype("upstream", tensors.upstream, problem.loss_dtype, "the dtype of loss");
    bind_upstream(tensors.upstream, vectors, request);
  }
  bind_inputs(tensors, vectors, request);
  bind_outputs(tensors, vectors, request);
  problem = generator::canonical(problem);
  arguments.statistics_words = generator::statistics_words(problem);
  const auto& [of_rank, bytes, ranks] = operation.peers;
  if (of_rank == nullptr) throw InvalidArgument("peers.memory", "null", "the memory of PeerMemory::view()");
  if (const std::int64_t needed = PeerMemory::bytes_for(ranks, problem.rows, arguments.statistics_words);
      bytes < needed)
    throw InvalidArgument("peers.bytes", fmt::to_string(bytes),
                          fmt::format("{} or more: {} rows of {} words on {} ranks", needed, problem.rows,
                                      arguments.statistics_words, ranks));
  arguments.ranks = ranks;
  arguments.exchange = static_cast<PeerExchange*>(of_rank);
  set_addresses(tensors, arguments);
  return request;
}

}  // namespace ce
