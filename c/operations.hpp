#pragma once
/// \file
/// The structs of each operation: Interface<Operation> names those of ce.h, and converts them to those of ce.
///
/// Each conversion lists all fields by name, so that a field that is added to ce or ce.h does not compile until the
/// other has it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "c/cross_entropy_fields.hpp"
#include "c/handles.hpp"
#include "c/structs.hpp"
#include "c/tensor.hpp"
#include "ce/ce.h"
#include "ce/linear.hpp"
#include "ce/operations.hpp"
#include "ce/ranks.hpp"

namespace ce::c {

/// \throws InvalidArgument for a number that is no value of the enumeration
[[nodiscard]] Reduction reduction_from(ce_reduction reduction);

/// \throws InvalidArgument if it is not 0
void require_reserved(std::int32_t reserved);

/// \throws InvalidArgument if it is neither 0 nor 1
[[nodiscard]] bool flag_from(std::string_view name, std::int32_t given);

template <class Operation>
struct Interface;

/// Softmax and LogSoftmax.
template <class Operation, class OptionsStruct, class TensorsStruct>
struct ForwardInterface {
  using Options = OptionsStruct;
  using Tensors = TensorsStruct;

  [[nodiscard]] static Operation operation(const Options& options) {
    [[maybe_unused]] const auto& [size] = options;
    static_assert(std::is_empty_v<Operation>);
    return {};
  }
  [[nodiscard]] static typename Operation::Tensors tensors(const Tensors& given) {
    const auto& [size, input, output] = given;
    const typename Operation::Tensors tensors{.input = tensor_from("input", input),
                                              .output = tensor_from("output", output)};
    [[maybe_unused]] const auto& [f1, f2] = tensors;
    return tensors;
  }
};

template <>
struct Interface<Softmax> : ForwardInterface<Softmax, ce_softmax_options, ce_softmax_tensors> {
  static constexpr Options no_options = CE_SOFTMAX_OPTIONS_INIT;
  static constexpr Tensors no_tensors = CE_SOFTMAX_TENSORS_INIT;
};

template <>
struct Interface<LogSoftmax> : ForwardInterface<LogSoftmax, ce_log_softmax_options, ce_log_softmax_tensors> {
  static constexpr Options no_options = CE_LOG_SOFTMAX_OPTIONS_INIT;
  static constexpr Tensors no_tensors = CE_LOG_SOFTMAX_TENSORS_INIT;
};

/// SoftmaxBackward and LogSoftmaxBackward.
template <class Operation, class OptionsStruct, class TensorsStruct>
struct BackwardInterface {
  using Options = OptionsStruct;
  using Tensors = TensorsStruct;

  [[nodiscard]] static Operation operation(const Options& options) {
    [[maybe_unused]] const auto& [size] = options;
    static_assert(std::is_empty_v<Operation>);
    return {};
  }
  [[nodiscard]] static typename Operation::Tensors tensors(const Tensors& given) {
    const auto& [size, output, output_grad, input_grad] = given;
    const typename Operation::Tensors tensors{.output = tensor_from("output", output),
                                              .output_grad = tensor_from("output_grad", output_grad),
                                              .input_grad = tensor_from("input_grad", input_grad)};
    [[maybe_unused]] const auto& [f1, f2, f3] = tensors;
    return tensors;
  }
};

template <>
struct Interface<SoftmaxBackward>
    : BackwardInterface<SoftmaxBackward, ce_softmax_backward_options, ce_softmax_backward_tensors> {
  static constexpr Options no_options = CE_SOFTMAX_BACKWARD_OPTIONS_INIT;
  static constexpr Tensors no_tensors = CE_SOFTMAX_BACKWARD_TENSORS_INIT;
};

template <>
struct Interface<LogSoftmaxBackward> : BackwardInterface<LogSoftmaxBackward, ce_log_softmax_backward_options,
                                                         ce_log_softmax_backward_tensors> {
  static constexpr Options no_options = CE_LOG_SOFTMAX_BACKWARD_OPTIONS_INIT;
  static constexpr Tensors no_tensors = CE_LOG_SOFTMAX_BACKWARD_TENSORS_INIT;
};

/// Number of fields of an aggregate, for conversions that name some fields and take the others from a table: a field in
/// neither of them does not compile.
struct AnyField {
  template <class Field>
  operator Field() const noexcept;  // NOLINT(google-explicit-constructor): converts to any type
};
template <class Struct, class... Fields>
[[nodiscard]] consteval std::size_t count_fields() {
  if constexpr (requires { Struct{Fields{}..., AnyField{}}; })
    return count_fields<Struct, Fields..., AnyField>();
  else
    return sizeof...(Fields);
}

/// The options that CrossEntropy and its gradient share.
template <class Operation, class Options>
[[nodiscard]] Operation cross_entropy_from(const Options& options) {
  static_assert(count_fields<Options>() == 3 + amount_fields.size());
  static_assert(count_fields<Operation>() == 2 + amount_fields.size());
  Operation operation{.ignore_index = options.ignore_index, .reduction = reduction_from(options.reduction)};
  for_each_index<amount_fields.size()>([&](auto index) {
    constexpr const AmountField& field = amount_fields[index];
    if constexpr (std::is_same_v<Operation, CrossEntropy>)
      operation.*field.of_forward = options.*field.given_to_forward;
    else
      operation.*field.of_backward = options.*field.given_to_backward;
  });
  return operation;
}

/// Copies the outputs of the table that an operation has.
template <class Operation, class Given>
void take_outputs(const Given& given, typename Operation::Tensors& tensors) {
  for_each_index<output_fields.size()>([&](auto index) {
    constexpr const OutputField& field = output_fields[index];
    constexpr auto member = field.of<Operation>();
    if constexpr (member.own != nullptr)
      if (const ce_tensor* tensor = given.*member.given; tensor != nullptr)
        tensors.*member.own = tensor_from(field.name, tensor);
  });
}

template <>
struct Interface<CrossEntropy> {
  using Options = ce_cross_entropy_options;
  using Tensors = ce_cross_entropy_tensors;
  static constexpr Options no_options = CE_CROSS_ENTROPY_OPTIONS_INIT;
  static constexpr Tensors no_tensors = CE_CROSS_ENTROPY_TENSORS_INIT;

  [[nodiscard]] static CrossEntropy operation(const Options& options) {
    return cross_entropy_from<CrossEntropy>(options);
  }
  [[nodiscard]] static CrossEntropy::Tensors tensors(const Tensors& given) {
    static_assert(count_fields<Tensors>() == 13 + count_outputs<CrossEntropy>());
    static_assert(count_fields<CrossEntropy::Tensors>() == 12 + count_outputs<CrossEntropy>());
    CrossEntropy::Tensors tensors{.logits = tensor_from("logits", given.logits),
                                  .target = tensor_from("target", given.target),
                                  .weight = tensor_from("weight", given.weight),
                                  .upstream = tensor_from("upstream", given.upstream),
                                  .loss = tensor_from("loss", given.loss),
                                  .grad = tensor_from("grad", given.grad),
                                  .row_weight = tensor_from("row_weight", given.row_weight),
                                  .row_scale = tensor_from("row_scale", given.row_scale),
                                  .divisor = tensor_from("divisor", given.divisor),
                                  .entropy_upstream = tensor_from("entropy_upstream", given.entropy_upstream),
                                  .lse_upstream = tensor_from("lse_upstream", given.lse_upstream),
                                  .given_lse = tensor_from("given_lse", given.given_lse)};
    take_outputs<CrossEntropy>(given, tensors);
    return tensors;
  }
};

template <>
struct Interface<CrossEntropyBackward> {
  using Options = ce_cross_entropy_backward_options;
  using Tensors = ce_cross_entropy_backward_tensors;
  static constexpr Options no_options = CE_CROSS_ENTROPY_BACKWARD_OPTIONS_INIT;
  static constexpr Tensors no_tensors = CE_CROSS_ENTROPY_BACKWARD_TENSORS_INIT;

  [[nodiscard]] static CrossEntropyBackward operation(const Options& options) {
    return cross_entropy_from<CrossEntropyBackward>(options);
  }
  [[nodiscard]] static CrossEntropyBackward::Tensors tensors(const Tensors& given) {
    const auto& [size, logits, target, weight, lse, upstream, grad, logprob, lse_low, entropy, row_weight,
                 row_scale, divisor, entropy_upstream, lse_upstream] = given;
    const CrossEntropyBackward::Tensors tensors{
        .logits = tensor_from("logits", logits),
        .target = tensor_from("target", target),
        .weight = tensor_from("weight", weight),
        .lse = tensor_from("lse", lse),
        .upstream = tensor_from("upstream", upstream),
        .grad = tensor_from("grad", grad),
        .logprob = tensor_from("logprob", logprob),
        .lse_low = tensor_from("lse_low", lse_low),
        .entropy = tensor_from("entropy", entropy),
        .row_weight = tensor_from("row_weight", row_weight),
        .row_scale = tensor_from("row_scale", row_scale),
        .divisor = tensor_from("divisor", divisor),
        .entropy_upstream = tensor_from("entropy_upstream", entropy_upstream),
        .lse_upstream = tensor_from("lse_upstream", lse_upstream)};
    [[maybe_unused]] const auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14] = tensors;
    return tensors;
  }
};

template <>
struct Interface<LinearCrossEntropy> {
  using Options = ce_linear_cross_entropy_options;
  using Tensors = ce_linear_cross_entropy_tensors;
  static constexpr Options no_options = CE_LINEAR_CROSS_ENTROPY_OPTIONS_INIT;
  static constexpr Tensors no_tensors = CE_LINEAR_CROSS_ENTROPY_TENSORS_INIT;

  [[nodiscard]] static LinearCrossEntropy operation(const Options& options) {
    using OfLoss = Interface<CrossEntropy>;
    const auto& [size, cross_entropy, memory_budget, chunk_tokens, logits_dtype, accumulation, valid_tokens,
                 exponentials, reserved] = options;
    require_reserved(reserved);
    if (exponentials < -1 || exponentials > 1)
      throw InvalidArgument("exponentials", std::to_string(exponentials), "-1, 0 or 1");
    const auto dtype = [](std::string_view name, ce_dtype given) {
      return given == CE_DTYPE_UNSET ? std::nullopt : std::optional(dtype_from(name, given));
    };
    OfLoss::Options storage;
    const OfLoss::Options& of_loss = cross_entropy == nullptr
                                         ? OfLoss::no_options
                                         : read_struct("cross_entropy", *cross_entropy, OfLoss::no_options,
                                                       sizeof(OfLoss::Options), storage);
    const LinearCrossEntropy operation{
        .cross_entropy = OfLoss::operation(of_loss),
        .memory_budget = memory_budget,
        .chunk_tokens = chunk_tokens,
        .logits_dtype = dtype("logits_dtype", logits_dtype),
        .accumulation = dtype("accumulation", accumulation),
        .valid_tokens = valid_tokens == -1 ? std::nullopt : std::optional(valid_tokens),
        .exponentials = exponentials == -1 ? std::nullopt : std::optional(exponentials == 1)};
    [[maybe_unused]] const auto& [f1, f2, f3, f4, f5, f6, f7] = operation;
    return operation;
  }
  [[nodiscard]] static LinearCrossEntropy::Tensors tensors(const Tensors& given) {
    static_assert(count_fields<Tensors>() == 17 + count_outputs<LinearCrossEntropy>());
    static_assert(count_fields<LinearCrossEntropy::Tensors>() == 16 + count_outputs<LinearCrossEntropy>());
    LinearCrossEntropy::Tensors tensors{
        .hidden = tensor_from("hidden", given.hidden),
        .weight = tensor_from("weight", given.weight),
        .bias = tensor_from("bias", given.bias),
        .target = tensor_from("target", given.target),
        .loss = tensor_from("loss", given.loss),
        .hidden_grad = tensor_from("hidden_grad", given.hidden_grad),
        .weight_grad = tensor_from("weight_grad", given.weight_grad),
        .bias_grad = tensor_from("bias_grad", given.bias_grad),
        .upstream = tensor_from("upstream", given.upstream),
        .class_weight = tensor_from("class_weight", given.class_weight),
        .row_weight = tensor_from("row_weight", given.row_weight),
        .row_scale = tensor_from("row_scale", given.row_scale),
        .divisor = tensor_from("divisor", given.divisor),
        .entropy_upstream = tensor_from("entropy_upstream", given.entropy_upstream),
        .lse_upstream = tensor_from("lse_upstream", given.lse_upstream),
        .workspace = tensor_from("workspace", given.workspace)};
    take_outputs<LinearCrossEntropy>(given, tensors);
    return tensors;
  }
};

/// The options of the whole row if ranks share the classes; the defaults if none are given.
[[nodiscard]] inline CrossEntropy whole_from(const ce_cross_entropy_options* options) {
  using Whole = Interface<CrossEntropy>;
  if (options == nullptr) return {};
  Whole::Options storage;
  return Whole::operation(
      read_struct("options.options", *options, Whole::no_options, sizeof(Whole::Options), storage));
}

template <>
struct Interface<CrossEntropyShard> {
  using Options = ce_cross_entropy_shard_options;
  using Tensors = ce_cross_entropy_shard_tensors;
  static constexpr Options no_options = CE_CROSS_ENTROPY_SHARD_OPTIONS_INIT;
  static constexpr Tensors no_tensors = CE_CROSS_ENTROPY_SHARD_TENSORS_INIT;

  [[nodiscard]] static CrossEntropyShard operation(const Options& given) {
    const auto& [size, options, first_class, classes, lse, argmax, entropy, reserved] = given;
    require_reserved(reserved);
    const CrossEntropyShard operation{.options = whole_from(options),
                                      .first_class = first_class,
                                      .classes = classes,
                                      .lse = flag_from("lse", lse),
                                      .argmax = flag_from("argmax", argmax),
                                      .entropy = flag_from("entropy", entropy)};
    [[maybe_unused]] const auto& [f1, f2, f3, f4, f5, f6] = operation;
    return operation;
  }
  [[nodiscard]] static CrossEntropyShard::Tensors tensors(const Tensors& given) {
    const auto& [size, logits, target, weight, statistics, row_scale] = given;
    const CrossEntropyShard::Tensors tensors{.logits = tensor_from("logits", logits),
                                             .target = tensor_from("target", target),
                                             .weight = tensor_from("weight", weight),
                                             .statistics = tensor_from("statistics", statistics),
                                             .row_scale = tensor_from("row_scale", row_scale)};
    [[maybe_unused]] const auto& [f1, f2, f3, f4, f5] = tensors;
    return tensors;
  }
};

template <>
struct Interface<CrossEntropyMerge> {
  using Options = ce_cross_entropy_merge_options;
  using Tensors = ce_cross_entropy_merge_tensors;
  static constexpr Options no_options = CE_CROSS_ENTROPY_MERGE_OPTIONS_INIT;
  static constexpr Tensors no_tensors = CE_CROSS_ENTROPY_MERGE_TENSORS_INIT;

  [[nodiscard]] static CrossEntropyMerge operation(const Options& given) {
    const auto& [size, options, classes, ranks, logits, probabilities, reserved] = given;
    require_reserved(reserved);
    const CrossEntropyMerge operation{.options = whole_from(options),
                                      .classes = classes,
                                      .ranks = ranks,
                                      .logits = dtype_from("logits", logits),
                                      .probabilities = flag_from("probabilities", probabilities)};
    [[maybe_unused]] const auto& [f1, f2, f3, f4, f5] = operation;
    return operation;
  }
  [[nodiscard]] static CrossEntropyMerge::Tensors tensors(const Tensors& given) {
    static_assert(count_fields<Tensors>() == 9 + count_outputs<CrossEntropyMerge>());
    static_assert(count_fields<CrossEntropyMerge::Tensors>() == 8 + count_outputs<CrossEntropyMerge>());
    CrossEntropyMerge::Tensors tensors{.statistics = tensor_from("statistics", given.statistics),
                                       .target = tensor_from("target", given.target),
                                       .weight = tensor_from("weight", given.weight),
                                       .loss = tensor_from("loss", given.loss),
                                       .row_weight = tensor_from("row_weight", given.row_weight),
                                       .row_scale = tensor_from("row_scale", given.row_scale),
                                       .divisor = tensor_from("divisor", given.divisor),
                                       .merged = tensor_from("merged", given.merged)};
    take_outputs<CrossEntropyMerge>(given, tensors);
    return tensors;
  }
};

template <>
struct Interface<CrossEntropyShardBackward> {
  using Options = ce_cross_entropy_shard_backward_options;
  using Tensors = ce_cross_entropy_shard_backward_tensors;
  static constexpr Options no_options = CE_CROSS_ENTROPY_SHARD_BACKWARD_OPTIONS_INIT;
  static constexpr Tensors no_tensors = CE_CROSS_ENTROPY_SHARD_BACKWARD_TENSORS_INIT;

  [[nodiscard]] static CrossEntropyShardBackward operation(const Options& given) {
    const auto& [size, options, first_class, classes] = given;
    const CrossEntropyShardBackward operation{
        .options = whole_from(options), .first_class = first_class, .classes = classes};
    [[maybe_unused]] const auto& [f1, f2, f3] = operation;
    return operation;
  }
  [[nodiscard]] static CrossEntropyShardBackward::Tensors tensors(const Tensors& given) {
    const auto& [size, logits, target, weight, statistics, upstream, grad, row_weight, row_scale, divisor,
                 entropy_upstream, lse_upstream] = given;
    const CrossEntropyShardBackward::Tensors tensors{
        .logits = tensor_from("logits", logits),
        .target = tensor_from("target", target),
        .weight = tensor_from("weight", weight),
        .statistics = tensor_from("statistics", statistics),
        .upstream = tensor_from("upstream", upstream),
        .grad = tensor_from("grad", grad),
        .row_weight = tensor_from("row_weight", row_weight),
        .row_scale = tensor_from("row_scale", row_scale),
        .divisor = tensor_from("divisor", divisor),
        .entropy_upstream = tensor_from("entropy_upstream", entropy_upstream),
        .lse_upstream = tensor_from("lse_upstream", lse_upstream)};
    [[maybe_unused]] const auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11] = tensors;
    return tensors;
  }
};

template <>
struct Interface<CrossEntropyExchange> {
  using Options = ce_cross_entropy_exchange_options;
  using Tensors = ce_cross_entropy_exchange_tensors;
  static constexpr Options no_options = CE_CROSS_ENTROPY_EXCHANGE_OPTIONS_INIT;
  static constexpr Tensors no_tensors = CE_CROSS_ENTROPY_EXCHANGE_TENSORS_INIT;

  [[nodiscard]] static CrossEntropyExchange operation(const Options& given) {
    const auto& [size, options, first_class, classes, peers] = given;
    const CrossEntropyExchange operation{.options = whole_from(options),
                                         .first_class = first_class,
                                         .classes = classes,
                                         .peers = peers == nullptr ? PeerView{} : from_handle(peers)->view()};
    [[maybe_unused]] const auto& [f1, f2, f3, f4] = operation;
    return operation;
  }
  [[nodiscard]] static CrossEntropyExchange::Tensors tensors(const Tensors& given) {
    return Interface<CrossEntropy>::tensors(given);
  }
};

}  // namespace ce::c
