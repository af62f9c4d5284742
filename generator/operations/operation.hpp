#pragma once
/// \file
/// The operations, and what is known of each apart from its options.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ce::generator {

enum class Operation : std::uint8_t {
  softmax,
  log_softmax,
  softmax_backward,        ///< from the output and its gradient
  log_softmax_backward,    ///< from the output and its gradient
  cross_entropy,           ///< loss, and on demand the gradient of the logits
  cross_entropy_backward,  ///< the gradient of the logits from a saved logsumexp
  cross_entropy_shard,     ///< if classes are spread over ranks: the statistics of one rank's columns
  cross_entropy_merge,  ///< loss and other results of rows, from the statistics of all ranks; `columns` are the ranks
  cross_entropy_shard_backward,  ///< the gradient of one rank's logits from the merged statistics
  cross_entropy_exchange,  ///< loss and gradient in one kernel; the kernels of the ranks exchange statistics
  copy,                    ///< one read and one write of memory: a ceiling
  read,                    ///< one read: a ceiling
  add,                     ///< two reads and one write: a ceiling
};

/// Operations that share statistics of rows, references and trials.
enum class Family : std::uint8_t {
  softmax,
  softmax_backward,
  cross_entropy,
  ceiling,  ///< the operation only moves memory
};

/// Whether the matrix of outputs, which for cross entropy is the gradient of the logits, is written.
enum class Writes : std::uint8_t { never, on_demand, always };

/// A row of the table of operations.
struct OperationRow {
  Operation operation;
  std::string_view word;
  Family family;
  /// File and type in templates/, as Variants use them; empty for ceilings.
  std::string_view file = {}, type = {};
  int inputs = 1;  ///< matrices that are read; probabilities as targets are another one
  Writes writes = Writes::always;
  bool has_losses = false;    ///< losses and other results of rows are written
  bool of_ranks = false;      ///< the columns are classes of a shard, or ranks
  bool of_logarithm = false;  ///< of the logarithm of a softmax
};

namespace detail {

constexpr OperationRow softmax_row(Operation operation, std::string_view word, bool of_logarithm) {
  return {.operation = operation,
          .word = word,
          .family = Family::softmax,
          .file = "operations/softmax.cuh",
          .type = "Softmax",
          .of_logarithm = of_logarithm};
}
constexpr OperationRow softmax_backward_row(Operation operation, std::string_view word, bool of_logarithm) {
  return {.operation = operation,
          .word = word,
          .family = Family::softmax_backward,
          .file = "operations/softmax_backward.cuh",
          .type = "SoftmaxBackward",
          .inputs = 2,
          .of_logarithm = of_logarithm};
}
constexpr OperationRow cross_entropy_row(Operation operation, std::string_view word, bool has_losses,
                                         Writes gradient) {
  return {.operation = operation,
          .word = word,
          .family = Family::cross_entropy,
          .file = "operations/cross_entropy.cuh",
          .type = "CrossEntropy",
          .writes = gradient,
          .has_losses = has_losses};
}
constexpr OperationRow ranks_row(Operation operation, std::string_view word, bool has_losses,
                                 Writes gradient) {
  OperationRow row = cross_entropy_row(operation, word, has_losses, gradient);
  row.file = "operations/cross_entropy_ranks.cuh";
  row.type = "CrossEntropyOfRanks";
  row.of_ranks = true;
  return row;
}
constexpr OperationRow ceiling_row(Operation operation, std::string_view word, int inputs, Writes output) {
  return {
      .operation = operation, .word = word, .family = Family::ceiling, .inputs = inputs, .writes = output};
}

}  // namespace detail

/// In the order of Operation.
inline constexpr std::array operation_rows{
    detail::softmax_row(Operation::softmax, "softmax", false),
    detail::softmax_row(Operation::log_softmax, "log_softmax", true),
    detail::softmax_backward_row(Operation::softmax_backward, "softmax_backward", false),
    detail::softmax_backward_row(Operation::log_softmax_backward, "log_softmax_backward", true),
    detail::cross_entropy_row(Operation::cross_entropy, "cross_entropy", true, Writes::on_demand),
    detail::cross_entropy_row(Operation::cross_entropy_backward, "cross_entropy_backward", false,
                              Writes::always),
    detail::ranks_row(Operation::cross_entropy_shard, "cross_entropy_shard", false, Writes::never),
    detail::ranks_row(Operation::cross_entropy_merge, "cross_entropy_merge", true, Writes::never),
    detail::ranks_row(Operation::cross_entropy_shard_backward, "cross_entropy_shard_backward", false,
                      Writes::always),
    detail::ranks_row(Operation::cross_entropy_exchange, "cross_entropy_exchange", true, Writes::always),
    detail::ceiling_row(Operation::copy, "copy", 1, Writes::always),
    detail::ceiling_row(Operation::read, "read", 1, Writes::never),
    detail::ceiling_row(Operation::add, "add", 2, Writes::always),
};

[[nodiscard]] constexpr const OperationRow& row_of(Operation operation) {
  return operation_rows.at(static_cast<std::size_t>(operation));
}
static_assert(std::ranges::all_of(operation_rows,
                                  [](const OperationRow& row) { return &row == &row_of(row.operation); }));

[[nodiscard]] constexpr std::string_view name(Operation operation) { return row_of(operation).word; }
[[nodiscard]] constexpr bool is_cross_entropy(Operation operation) {
  return row_of(operation).family == Family::cross_entropy;
}
[[nodiscard]] constexpr bool is_ceiling(Operation operation) {
  return row_of(operation).family == Family::ceiling;
}
/// Whether its columns are classes of a shard, or ranks.
[[nodiscard]] constexpr bool is_sharded(Operation operation) { return row_of(operation).of_ranks; }
/// Whether losses and other results of rows are written.
[[nodiscard]] constexpr bool has_losses(Operation operation) { return row_of(operation).has_losses; }
/// Whether ranks exchange statistics of their rows while the kernel runs.
[[nodiscard]] constexpr bool exchanges(Operation operation) {
  return operation == Operation::cross_entropy_exchange;
}
/// Whether the gradient of the logits is always written.
[[nodiscard]] constexpr bool always_has_gradient(Operation operation) {
  return is_cross_entropy(operation) && row_of(operation).writes == Writes::always;
}
/// Whether the gradient of the logits is the only output.
[[nodiscard]] constexpr bool is_gradient_alone(Operation operation) {
  return always_has_gradient(operation) && !has_losses(operation);
}

/// Which operations a text may name.
enum class Named : std::uint8_t {
  any,
  of_one_rank,  ///< operations of calls on all classes: neither ceilings nor operations of ranks
};

[[nodiscard]] constexpr bool may_be_named(Operation operation, Named which) {
  return which == Named::any || !(is_ceiling(operation) || is_sharded(operation));
}

/// \throws InvalidArgument naming `argument` and the accepted operations
[[nodiscard]] Operation parse_operation(std::string_view text, std::string_view argument = "operation",
                                        Named which = Named::any);

}  // namespace ce::generator
