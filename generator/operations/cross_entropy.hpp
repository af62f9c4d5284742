#pragma once
/// \file
/// The options, the outputs and the optional inputs of cross entropy, each defined once.
///
/// Other code derives from these tables: checks of calls, the words of keys and their parsing, validation, the
/// constants of sources, the bits of the plan table, what ranks must agree on, JSON, the flags of the command with
/// their help, traffic, the amounts of trials, and the tensors of trials and of files.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ce/dtype.hpp"
#include "ce/operations.hpp"
#include "ce/ranks.hpp"
#include "templates/arguments.cuh"

namespace ce::generator {

struct Problem;

/// The options, outputs and optional inputs of a problem. Each changes the code of its kernels.
struct CrossEntropyFlags {
  bool smoothing = false;
  bool z_loss = false;   ///< amount x logsumexp squared is added to the loss
  bool softcap = false;  ///< logits become cap x tanh(logit / cap)
  bool scale = false;    ///< logits are multiplied, before the cap
  bool token_scaling =
      false;  ///< loss and gradient are multiplied by a power of the target's detached probability
  bool row_weights = false;       ///< loss and gradient are multiplied by a weight of the row
  bool row_scales = false;        ///< logits are multiplied by a scale of the row
  bool divisor = false;           ///< the caller gives the divisor of the mean
  bool entropy_upstream = false;  ///< the gradient of the entropy of the rows enters that of the logits
  bool lse_upstream = false;      ///< the gradient of the logsumexp of the rows enters that of the logits
  bool saved_logprob = false;     ///< cross_entropy_backward also reads the log-probabilities of the targets
  bool saved_lse_low = false;     ///< cross_entropy_backward also reads the rounding errors of the logsumexps
  bool given_lse = false;         ///< losses are computed from logsumexps that the caller gives
  bool z_loss_out = false;        ///< the z-loss is written too, reduced like the loss
  bool lse_out = false;           ///< logsumexp of the rows is written
  bool lse_low_out = false;       ///< the rounding errors of the logsumexps are written
  bool logprob_out = false;       ///< the log-probability of the rows' targets is written
  bool entropy_out = false;       ///< the entropy of the rows is written
  bool argmax_out = false;        ///< the first largest logit of the rows is written
  bool hit_out = false;           ///< whether the first largest logit is the target is written

  friend bool operator==(const CrossEntropyFlags&, const CrossEntropyFlags&) = default;
};

/// An option whose amount is an argument of the kernels. Only whether a problem has the option changes their code.
struct CrossEntropyOption {
  /// Amounts for trials: they make the option visible, and keep the meaning of each kind of row.
  struct Trials {
    float ordinary;
    float extreme;    ///< for rows of extreme magnitudes, which must be scaled exactly
    float confident;  ///< for confident rows, and for kernels that are timed
  };

  float CrossEntropy::*of_forward;  ///< the amount in a call
  float CrossEntropyBackward::*of_backward;
  std::string_view name;           ///< name of the members above
  bool CrossEntropyFlags::*field;  ///< whether a problem has the option
  std::string_view word;           ///< name in keys, sources and JSON
  float neutral;                   ///< the amount that stands for "off"
  bool (*takes)(float amount);     ///< whether an amount is valid
  std::string_view expected;       ///< describes valid amounts
  bool of_classes = false;         ///< only valid with class indices
  /// Changes nothing in the statistics of one rank's columns: cross_entropy_shard leaves it out.
  bool unused_by_shards = false;
  bool CrossEntropyFlags::*saved =
      nullptr;  ///< the input that cross_entropy_backward requires with it, or null
  Trials trials;
  std::string_view flag, help;  ///< name and help of the command's flag

  /// The amount's member in a forward or backward operation.
  template <class Operation>
  [[nodiscard]] constexpr float Operation::*of() const noexcept {
    if constexpr (std::is_same_v<Operation, CrossEntropy>)
      return of_forward;
    else
      return of_backward;
  }
};

/// Products and ratios of amounts within these bounds, with each other and with log2(e), are neither infinite nor
/// subnormal.
[[nodiscard]] constexpr bool is_moderate(float amount) noexcept {
  return amount >= 0x1p-60f && amount <= 0x1p60f;
}

inline constexpr auto cross_entropy_options = std::to_array<CrossEntropyOption>({
    {.of_forward = &CrossEntropy::label_smoothing,
     .of_backward = &CrossEntropyBackward::label_smoothing,
     .name = "label_smoothing",
     .field = &CrossEntropyFlags::smoothing,
     .word = "smoothing",
     .neutral = 0,
     .takes = [](float amount) { return amount >= 0 && amount <= 1; },
     .expected = "0 to 1",
     .trials = {0.1f, 0.1f, 0.1f},
     .flag = "--smoothing",
     .help = "Label smoothing"},
    {.of_forward = &CrossEntropy::z_loss,
     .of_backward = &CrossEntropyBackward::z_loss,
     .name = "z_loss",
     .field = &CrossEntropyFlags::z_loss,
     .word = "z_loss",
     .neutral = 0,
     .takes = [](float amount) { return amount >= 0 && amount <= 0x1p60f; },
     .expected = "0 to 2^60",
     .unused_by_shards = true,
     .trials = {1e-2f, 1e-4f, 1e-4f},
     .flag = "--z-loss",
     .help = "Add logsumexp squared, times an amount"},
    // Kernels look for the maximum with only one of the caps; with the others they need none (logits.cuh).
    {.of_forward = &CrossEntropy::softcap,
     .of_backward = &CrossEntropyBackward::softcap,
     .name = "softcap",
     .field = &CrossEntropyFlags::softcap,
     .word = "softcap",
     .neutral = 0,
     .takes = [](float amount) { return amount == 0 || is_moderate(amount); },
     .expected = "0 (no cap), or 2^-60 to 2^60",
     .trials = {5, 40, 30},
     .flag = "--softcap",
     .help = "Logits become cap * tanh(logit / cap)"},
    {.of_forward = &CrossEntropy::logit_scale,
     .of_backward = &CrossEntropyBackward::logit_scale,
     .name = "logit_scale",
     .field = &CrossEntropyFlags::scale,
     .word = "scale",
     .neutral = 1,
     .takes = is_moderate,
     .expected = "2^-60 to 2^60",
     .trials = {0.7f, 0.5f, 0.7f},
     .flag = "--scale",
     .help = "Logits are multiplied by a number"},
    {.of_forward = &CrossEntropy::token_scaling,
     .of_backward = &CrossEntropyBackward::token_scaling,
     .name = "token_scaling",
     .field = &CrossEntropyFlags::token_scaling,
     .word = "token_scaling",
     .neutral = 0,
     .takes = [](float amount) { return amount >= 0 && amount <= 16; },
     .expected = "0 to 16",
     .of_classes = true,
     .unused_by_shards = true,
     .saved = &CrossEntropyFlags::saved_logprob,
     .trials = {1, 1, 1},
     .flag = "--token-scaling",
     .help = "Multiply each row by its target's probability, to a power"},
});

/// The member of a tensor in each operation, null if the operation has no such tensor. Type is Tensor or ConstTensor.
template <class Type>
struct TensorOfOperations {
  Type CrossEntropy::Tensors::*of_forward = nullptr;
  Type CrossEntropyBackward::Tensors::*of_backward = nullptr;
  Type CrossEntropyShard::Tensors::*of_shard = nullptr;
  Type CrossEntropyMerge::Tensors::*of_merge = nullptr;
  Type CrossEntropyShardBackward::Tensors::*of_shard_backward = nullptr;

  template <class Tensors>
  [[nodiscard]] constexpr Type Tensors::*of() const noexcept {
    if constexpr (std::is_same_v<Tensors, CrossEntropy::Tensors>)
      return of_forward;
    else if constexpr (std::is_same_v<Tensors, CrossEntropyBackward::Tensors>)
      return of_backward;
    else if constexpr (std::is_same_v<Tensors, CrossEntropyShard::Tensors>)
      return of_shard;
    else if constexpr (std::is_same_v<Tensors, CrossEntropyMerge::Tensors>)
      return of_merge;
    else if constexpr (std::is_same_v<Tensors, CrossEntropyShardBackward::Tensors>)
      return of_shard_backward;
    else
      return nullptr;
  }
};

/// An output that a forward call may ask for besides its loss.
struct CrossEntropyOutput {
  /// The shape and dtype of an output.
  enum class Kind : std::uint8_t {
    of_rows,   ///< [rows] of `dtype`
    of_losses  ///< like the loss: [rows] or [1], with the loss's dtype
  };
  /// Tolerances of the verification against f64, in addition to those of losses: relative and absolute, and multiples
  /// of the error of a logit.
  struct Tolerance {
    double relative = 0, absolute = 0, relative_of_logits = 0, absolute_of_logits = 0;
  };

  bool CrossEntropyFlags::*field;  ///< whether it is written
  std::string_view word;           ///< name in keys, sources and JSON
  std::string_view tensor;         ///< name in include/ce/operations.hpp
  TensorOfOperations<Tensor> member;
  Kind kind = Kind::of_rows;
  DType dtype = DType::f32;                  ///< for Kind::of_rows
  bool CrossEntropyFlags::*needs = nullptr;  ///< the option that the output requires, or null
  bool of_classes = false;                   ///< only valid with class indices
  bool of_all_classes = false;  ///< depends on all logits of a row: not available if its logsumexp is given
  bool of_shards = false;       ///< changes which statistics a shard writes
  Tolerance tolerance = {};     ///< for Kind::of_rows
  std::string_view flag, help;  ///< name and help of the command's flag

  [[nodiscard]] constexpr bool is_possible(const Problem& problem) const noexcept;
  [[nodiscard]] constexpr DType dtype_of(const Problem& problem) const noexcept;
  [[nodiscard]] constexpr std::int64_t elements(const Problem& problem) const noexcept;
};

inline constexpr auto cross_entropy_outputs = std::to_array<CrossEntropyOutput>({
    {.field = &CrossEntropyFlags::z_loss_out,
     .word = "z_loss_out",
     .tensor = "z_loss_out",
     .member = {.of_forward = &CrossEntropy::Tensors::z_loss_out,
                .of_merge = &CrossEntropyMerge::Tensors::z_loss_out},
     .kind = CrossEntropyOutput::Kind::of_losses,
     .needs = &CrossEntropyFlags::z_loss,
     .flag = "--z-loss-out",
     .help = "Write the z-loss separately, too"},
    {.field = &CrossEntropyFlags::lse_out,
     .word = "lse_out",
     .tensor = "lse",
     .member = {.of_forward = &CrossEntropy::Tensors::lse, .of_merge = &CrossEntropyMerge::Tensors::lse},
     .of_all_classes = true,
     .of_shards = true,
     .tolerance = {.relative = 1e-6, .absolute = 4e-6, .absolute_of_logits = 2},
     .flag = "--lse",
     .help = "Write the logsumexp of each row"},
    {.field = &CrossEntropyFlags::lse_low_out,
     .word = "lse_low_out",
     .tensor = "lse_low",
     .member = {.of_forward = &CrossEntropy::Tensors::lse_low},
     .of_all_classes = true,
     .tolerance = {.absolute = 4e-6, .absolute_of_logits = 2},
     .flag = "--lse-low",
     .help = "Write the rounding error of each logsumexp in f32"},
    {.field = &CrossEntropyFlags::logprob_out,
     .word = "logprob_out",
     .tensor = "logprob",
     .member = {.of_forward = &CrossEntropy::Tensors::logprob,
                .of_merge = &CrossEntropyMerge::Tensors::logprob},
     .of_classes = true,
     .tolerance = {.relative = 1e-5, .relative_of_logits = 4},
     .flag = "--logprob",
     .help = "Write the log-probability of each target"},
    {.field = &CrossEntropyFlags::entropy_out,
     .word = "entropy_out",
     .tensor = "entropy",
     .member = {.of_forward = &CrossEntropy::Tensors::entropy,
                .of_merge = &CrossEntropyMerge::Tensors::entropy},
     .of_all_classes = true,
     .of_shards = true,
     .tolerance = {.relative = 1e-5, .absolute = 1e-5, .absolute_of_logits = 8},
     .flag = "--entropy",
     .help = "Write the entropy of each row"},
    {.field = &CrossEntropyFlags::argmax_out,
     .word = "argmax_out",
     .tensor = "argmax",
     .member = {.of_forward = &CrossEntropy::Tensors::argmax,
                .of_merge = &CrossEntropyMerge::Tensors::argmax},
     .dtype = DType::i64,
     .of_all_classes = true,
     .of_shards = true,
     .flag = "--argmax",
     .help = "Write the first largest class of each row"},
    {.field = &CrossEntropyFlags::hit_out,
     .word = "hit_out",
     .tensor = "hit",
     .member = {.of_forward = &CrossEntropy::Tensors::hit, .of_merge = &CrossEntropyMerge::Tensors::hit},
     .dtype = DType::u8,
     .of_classes = true,
     .of_all_classes = true,
     .flag = "--hit",
     .help = "Write whether the first largest class of each row is the target"},
});

/// The index of a field's row in a table that has it.
template <const auto& table>
[[nodiscard]] constexpr std::size_t index_in(bool CrossEntropyFlags::*field) noexcept {
  std::size_t i = 0;
  while (table[i].field != field) ++i;
  return i;
}

/// The index of an output in the table, and of its tensor in Arguments.
[[nodiscard]] constexpr std::size_t index_of(const CrossEntropyOutput& output) noexcept {
  return static_cast<std::size_t>(&output - cross_entropy_outputs.data());
}
static_assert(cross_entropy_outputs.size() <= most_outputs);

/// The offset of its tensor in Arguments.
[[nodiscard]] constexpr std::size_t argument_of(const CrossEntropyOutput& output) noexcept {
  return offsetof(Arguments, outputs) + index_of(output) * sizeof(void*);
}
[[nodiscard]] constexpr std::size_t argument_of(bool CrossEntropyFlags::*output) noexcept {
  return argument_of(cross_entropy_outputs[index_in<cross_entropy_outputs>(output)]);
}

/// The tensor of an output in the kernels' arguments.
template <bool CrossEntropyFlags::*output>
[[nodiscard]] constexpr void*& output_of(Arguments& arguments) noexcept {
  constexpr std::size_t index = index_in<cross_entropy_outputs>(output);
  return arguments.outputs[index];
}
template <bool CrossEntropyFlags::*output>
[[nodiscard]] constexpr void* output_of(const Arguments& arguments) noexcept {
  constexpr std::size_t index = index_in<cross_entropy_outputs>(output);
  return arguments.outputs[index];
}

/// An f32 input that a call may give besides its targets, weights and upstream gradient.
struct CrossEntropyInput {
  bool CrossEntropyFlags::*field;  ///< whether it is read
  std::string_view word;           ///< name in keys, sources and JSON
  std::string_view tensor;         ///< name in include/ce/operations.hpp
  TensorOfOperations<ConstTensor> member;
  std::size_t argument;         ///< offset in Arguments
  bool of_rows = true;          ///< [rows]; else [1]
  bool of_classes = false;      ///< only valid with class indices
  bool of_gradient = false;     ///< only valid if the gradient of the logits is written
  bool of_backward = false;     ///< only valid for cross_entropy_backward
  bool of_mean = false;         ///< only valid with the reduction mean
  bool of_loss_alone = false;   ///< only valid for losses without gradient and smoothing
  bool of_shards = false;       ///< changes which statistics a shard writes
  std::string_view flag, help;  ///< name and help of the command's flag

  [[nodiscard]] constexpr bool is_possible(const Problem& problem) const noexcept;
  /// Describes the problems that the input is valid for.
  [[nodiscard]] constexpr std::string_view needed() const noexcept {
    return of_backward     ? of_classes ? "class indices of cross_entropy_backward" : "cross_entropy_backward"
           : of_gradient   ? "a gradient of cross entropy"
           : of_mean       ? "the reduction mean of cross entropy"
           : of_loss_alone ? "losses of class indices without gradient and smoothing"
                           : "cross entropy";
  }
  [[nodiscard]] constexpr std::int64_t elements(const Problem& problem) const noexcept;
};

inline constexpr auto cross_entropy_inputs = std::to_array<CrossEntropyInput>({
    {.field = &CrossEntropyFlags::row_weights,
     .word = "row_weights",
     .tensor = "row_weight",
     .member = {.of_forward = &CrossEntropy::Tensors::row_weight,
                .of_backward = &CrossEntropyBackward::Tensors::row_weight,
                .of_merge = &CrossEntropyMerge::Tensors::row_weight,
                .of_shard_backward = &CrossEntropyShardBackward::Tensors::row_weight},
     .argument = offsetof(Arguments, row_weight),
     .flag = "--row-weights",
     .help = "Each row's loss and gradient is multiplied by a weight"},
    {.field = &CrossEntropyFlags::row_scales,
     .word = "row_scales",
     .tensor = "row_scale",
     .member = {.of_forward = &CrossEntropy::Tensors::row_scale,
                .of_backward = &CrossEntropyBackward::Tensors::row_scale,
                .of_shard = &CrossEntropyShard::Tensors::row_scale,
                .of_merge = &CrossEntropyMerge::Tensors::row_scale,
                .of_shard_backward = &CrossEntropyShardBackward::Tensors::row_scale},
     .argument = offsetof(Arguments, row_scale),
     .of_shards = true,
     .flag = "--row-scales",
     .help = "Each row's logits are multiplied by that row's number"},
    {.field = &CrossEntropyFlags::divisor,
     .word = "divisor",
     .tensor = "divisor",
     .member = {.of_forward = &CrossEntropy::Tensors::divisor,
                .of_backward = &CrossEntropyBackward::Tensors::divisor,
                .of_merge = &CrossEntropyMerge::Tensors::divisor,
                .of_shard_backward = &CrossEntropyShardBackward::Tensors::divisor},
     .argument = offsetof(Arguments, divisor),
     .of_rows = false,
     .of_mean = true,
     .flag = "--divisor",
     .help = "The mean is divided by a number in device memory"},
    {.field = &CrossEntropyFlags::entropy_upstream,
     .word = "entropy_upstream",
     .tensor = "entropy_upstream",
     .member = {.of_forward = &CrossEntropy::Tensors::entropy_upstream,
                .of_backward = &CrossEntropyBackward::Tensors::entropy_upstream,
                .of_shard_backward = &CrossEntropyShardBackward::Tensors::entropy_upstream},
     .argument = offsetof(Arguments, entropy_upstream),
     .of_gradient = true,
     .flag = "--entropy-upstream",
     .help = "Gradients of the entropies are added to the gradient of the logits"},
    {.field = &CrossEntropyFlags::lse_upstream,
     .word = "lse_upstream",
     .tensor = "lse_upstream",
     .member = {.of_forward = &CrossEntropy::Tensors::lse_upstream,
                .of_backward = &CrossEntropyBackward::Tensors::lse_upstream,
                .of_shard_backward = &CrossEntropyShardBackward::Tensors::lse_upstream},
     .argument = offsetof(Arguments, lse_upstream),
     .of_gradient = true,
     .flag = "--lse-upstream",
     .help = "Gradients of the logsumexps are added to the gradient of the logits"},
    {.field = &CrossEntropyFlags::saved_logprob,
     .word = "saved_logprob",
     .tensor = "logprob",
     .member = {.of_backward = &CrossEntropyBackward::Tensors::logprob},
     .argument = argument_of(&CrossEntropyFlags::logprob_out),
     .of_classes = true,
     .of_gradient = true,
     .of_backward = true,
     .flag = "--saved-logprob",
     .help = "The backward reads the targets' log-probabilities, too"},
    {.field = &CrossEntropyFlags::saved_lse_low,
     .word = "saved_lse_low",
     .tensor = "lse_low",
     .member = {.of_backward = &CrossEntropyBackward::Tensors::lse_low},
     .argument = argument_of(&CrossEntropyFlags::lse_low_out),
     .of_gradient = true,
     .of_backward = true,
     .flag = "--saved-lse-low",
     .help = "The backward reads the rounding errors of the logsumexps, too"},
    {.field = &CrossEntropyFlags::given_lse,
     .word = "given_lse",
     .tensor = "given_lse",
     .member = {.of_forward = &CrossEntropy::Tensors::given_lse},
     .argument = argument_of(&CrossEntropyFlags::lse_out),
     .of_classes = true,
     .of_loss_alone = true,
     .flag = "--given-lse",
     .help = "Compute losses from the targets' logits and given logsumexps"},
});

[[nodiscard]] constexpr std::size_t argument_of(const CrossEntropyInput& input) noexcept {
  return input.argument;
}

/// Visits the rows of a table without a run-time loop, for the fast path of calls.
template <const auto& table, class Visit>
constexpr void for_each_row(const Visit& visit) {
  [&]<std::size_t... i>(std::index_sequence<i...>) { (visit(table[i]), ...); }
  (std::make_index_sequence<table.size()>());
}

/// Visits the optional outputs, then the optional inputs, of an operation.
/// \param visit  receives the row and the member of Tensors
template <class Tensors, class Visit>
constexpr void for_each_optional_tensor(const Visit& visit) {
  const auto visit_own = [&](const auto& row) {
    if (const auto member = row.member.template of<Tensors>(); member != nullptr) visit(row, member);
  };
  for_each_row<cross_entropy_outputs>(visit_own);
  for_each_row<cross_entropy_inputs>(visit_own);
}

/// The index of an option in the table, and of its amount in Arguments.
[[nodiscard]] constexpr std::size_t index_of(const CrossEntropyOption& option) noexcept {
  return static_cast<std::size_t>(&option - cross_entropy_options.data());
}
[[nodiscard]] constexpr std::size_t index_of(bool CrossEntropyFlags::*field) noexcept {
  return index_in<cross_entropy_options>(field);
}
static_assert(cross_entropy_options.size() <= most_amounts);

/// The name of the constant that tells kernels the index of its amount.
[[nodiscard]] inline std::string amount_constant(const CrossEntropyOption& option) {
  return "static constexpr int " + std::string(option.word) + "_amount = " + std::to_string(index_of(option));
}

/// Finds the option of a field, which must have one.
[[nodiscard]] constexpr const CrossEntropyOption& option_of(bool CrossEntropyFlags::*field) noexcept {
  return cross_entropy_options[index_of(field)];
}

/// Finds the input of a field, which must be one.
[[nodiscard]] constexpr const CrossEntropyInput& input_of(bool CrossEntropyFlags::*field) noexcept {
  return cross_entropy_inputs[index_in<cross_entropy_inputs>(field)];
}

/// The amounts of all options; by default all are off.
template <class Number>
struct CrossEntropyAmounts {
  std::array<Number, cross_entropy_options.size()> values = neutral();

  [[nodiscard]] constexpr Number& operator[](bool CrossEntropyFlags::*field) noexcept {
    return values[index_of(field)];
  }
  [[nodiscard]] constexpr Number operator[](bool CrossEntropyFlags::*field) const noexcept {
    return values[index_of(field)];
  }
  [[nodiscard]] static constexpr decltype(values) neutral() noexcept {
    decltype(values) amounts{};
    for (std::size_t i = 0; i < amounts.size(); ++i)
      amounts[i] = static_cast<Number>(cross_entropy_options[i].neutral);
    return amounts;
  }
};

/// The amount of an option as kernels receive it.
[[nodiscard]] constexpr float& amount_of(bool CrossEntropyFlags::*field, Arguments& arguments) noexcept {
  return arguments.amounts[index_of(field)];
}
[[nodiscard]] constexpr float amount_of(bool CrossEntropyFlags::*field, const Arguments& arguments) noexcept {
  return arguments.amounts[index_of(field)];
}

}  // namespace ce::generator
