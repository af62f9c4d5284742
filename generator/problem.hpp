#pragma once
/// \file
/// What is asked of a kernel.

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ce/dtype.hpp"
#include "generator/operations/cross_entropy.hpp"

namespace ce::generator {

enum class Operation : std::uint8_t {
  softmax,
  log_softmax,
  softmax_backward,        ///< from the output and its gradient
  log_softmax_backward,    ///< the same
  cross_entropy,           ///< loss, and on demand the gradient of the logits
  cross_entropy_backward,  ///< the gradient of the logits from a saved logsumexp
  cross_entropy_shard,     ///< of classes that are spread over ranks: what one rank's columns say of each row
  cross_entropy_merge,  ///< loss and other results of rows, from what all ranks say; `columns` are the ranks
  cross_entropy_shard_backward,  ///< the gradient of one rank's logits from what was merged
  cross_entropy_exchange,        ///< loss and gradient at once, of ranks whose kernels exchange statistics
  copy,                          ///< one read and one write of memory: a ceiling
  read,                          ///< one read: a ceiling
  add,                           ///< two reads and one write: a ceiling
};

/// cross_entropy, cross_entropy_backward, or one of those that ranks go through together.
[[nodiscard]] constexpr bool is_cross_entropy(Operation operation) noexcept {
  return operation >= Operation::cross_entropy && operation <= Operation::cross_entropy_exchange;
}
/// The columns are classes of a shard, or ranks.
[[nodiscard]] constexpr bool is_sharded(Operation operation) noexcept {
  return operation >= Operation::cross_entropy_shard && operation <= Operation::cross_entropy_exchange;
}
/// Losses and other results of rows are written.
[[nodiscard]] constexpr bool has_losses(Operation operation) noexcept {
  return operation == Operation::cross_entropy || operation == Operation::cross_entropy_merge ||
         operation == Operation::cross_entropy_exchange;
}
/// Ranks exchange statistics of their rows while the kernel runs.
[[nodiscard]] constexpr bool exchanges(Operation operation) noexcept {
  return operation == Operation::cross_entropy_exchange;
}
/// The gradient of the logits is all that is written.
[[nodiscard]] constexpr bool is_gradient_alone(Operation operation) noexcept {
  return operation == Operation::cross_entropy_backward ||
         operation == Operation::cross_entropy_shard_backward;
}
/// The gradient of the logits is always written.
[[nodiscard]] constexpr bool always_has_gradient(Operation operation) noexcept {
  return is_gradient_alone(operation) || exchanges(operation);
}
/// Nothing but memory traffic.
[[nodiscard]] constexpr bool is_ceiling(Operation operation) noexcept { return operation >= Operation::copy; }

[[nodiscard]] std::string_view name(Operation operation) noexcept;
/// \param ceilings  whether these are meant, too
/// \throws InvalidArgument naming `argument` and the operations that are
[[nodiscard]] Operation parse_operation(std::string_view text, std::string_view argument = "operation",
                                        bool ceilings = true);

/// Columns are 32-bit integers in the kernels.
inline constexpr std::int64_t most_columns = std::int64_t{1} << 30;

/// How the rows of the tensors lie with respect to 16-byte boundaries; decides how a kernel may vectorise.
enum class Alignment : std::uint8_t {
  vector,  ///< every row of every tensor starts on a boundary
  dense,  ///< narrow rows of which only the first of every tensor does: each follows the one before without a gap
  shifted,  ///< rows start anywhere, but a row of the output at the same distance from a boundary as that of
            ///< the input
  element,  ///< neither
};

inline constexpr std::array alignments{Alignment::vector, Alignment::dense, Alignment::shifted,
                                       Alignment::element};
[[nodiscard]] std::string_view name(Alignment alignment) noexcept;

/// Bytes of the widest rows of Alignment::dense. Wider ones have vectors of 16 bytes enough wherever they start.
inline constexpr std::int64_t widest_dense_row = 256;

/// The address of a tensor's first row and the distance between rows, as far as Alignment cares.
struct RowPlacement {
  std::uint64_t address = 0;
  std::int64_t stride_bytes = 0;
  std::int64_t batch_stride_bytes = 0;  ///< 0 without batches
};

/// \param row_bytes  of the elements of a row
/// \param tensors    all that are read or written by rows
[[nodiscard]] Alignment alignment_of(std::int64_t rows, std::int64_t row_bytes,
                                     std::span<const RowPlacement> tensors) noexcept;

/// The gradient of the loss that the gradient of the logits is multiplied with.
enum class Upstream : std::uint8_t {
  one,     ///< none was given
  scalar,  ///< one number
  rows,    ///< one for each row
};

[[nodiscard]] std::string_view name(Upstream upstream) noexcept;

/// The operation with its options, dtypes and shape: everything that may change which kernel is fastest.
/// Fields that the operation does not have stay at their defaults, so that equal problems compare equal.
struct Problem {
  Operation operation = Operation::softmax;
  DType dtype = DType::f32;  ///< of everything that is [rows, columns]

  // Cross entropy. Amounts (how much smoothing, which cap) are arguments of the kernel; whether there is an
  // option at all changes its code.
  DType target_dtype = DType::i64;  ///< of class indices
  DType loss_dtype = DType::f32;    ///< of loss, z-loss and upstream gradient
  DType weight_dtype = DType::f32;  ///< of class weights
  Reduction reduction = Reduction::none;
  Upstream upstream = Upstream::one;  ///< where there is a gradient
  bool gradient = false;       ///< the gradient of the logits is written; always so for a backward operation
  bool probabilities = false;  ///< targets are [rows, columns] of `dtype` instead of class indices
  bool weights = false;        ///< one for each class
  CrossEntropyFlags has;

  bool in_place = false;  ///< the output is the input (of a backward operation: the gradient that it reads)
  bool batched = false;   ///< rows lie in batches, with one stride inside a batch and another between batches
  bool strided = false;   ///< the elements of a row do not follow each other
  Alignment alignment = Alignment::vector;  ///< vector where strided
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  friend bool operator==(const Problem&, const Problem&) = default;
};

/// Whether rows of this shape can be of Alignment::dense: two or more, up to `widest_dense_row` bytes wide, no multiple of
/// 16, and without batches.
[[nodiscard]] bool can_be_dense(const Problem& problem) noexcept;
/// Whether every row of every tensor starts on a boundary of vectors of `vec` elements, 16 bytes at most.
/// \param vec  0 where there are no vectors
[[nodiscard]] bool starts_on_vectors(const Problem& problem, int vec) noexcept;

/// Whether anything is written per element.
[[nodiscard]] bool has_output(const Problem& problem) noexcept;

/// Matrices [rows, columns] that are read: 1 or 2.
[[nodiscard]] int inputs(const Problem& problem) noexcept;

/// Whether a row needs the weights of all classes, not only that of its target.
[[nodiscard]] bool reads_all_weights(const Problem& problem) noexcept;
/// Whether options change which configs are fast: the weights of all classes take shared memory, a soft cap arithmetic.
[[nodiscard]] bool has_costly_options(const Problem& problem) noexcept;

/// Whether the logsumexps of the rows are an input.
[[nodiscard]] bool reads_lse(const Problem& problem) noexcept;

/// Whether a row must be read as a whole before anything is known of its outputs.
[[nodiscard]] bool reduces(const Problem& problem) noexcept;

/// Whether the entropies of the rows are an input.
[[nodiscard]] bool reads_entropy(const Problem& problem) noexcept;

/// Whether rows that count, or their weights, must be added up before gradients are known: those of a mean over class
/// indices.
[[nodiscard]] bool counts_first(const Problem& problem) noexcept;

/// Whether losses must be added up.
[[nodiscard]] bool sums_losses(const Problem& problem) noexcept;

/// Whether the kernel of the rows counts and adds up by itself, not one before and one after it.
[[nodiscard]] bool fuses_sums(const Problem& problem) noexcept;

/// Rows whose winners are taken to be the same: the next power of two.
[[nodiscard]] constexpr std::int64_t rows_bucket(std::int64_t rows) noexcept {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
}

/// The problem that stands for its bucket of rows.
[[nodiscard]] constexpr Problem bucketed(const Problem& problem) noexcept {
  Problem bucket = problem;
  bucket.rows = rows_bucket(problem.rows);
  return bucket;
}

/// The problem as run() asks for it. Two pairs of options ask the same of a kernel: the losses that a sum adds up have the
/// gradients of losses by themselves, and the one upstream gradient of a single row is one number.
[[nodiscard]] constexpr Problem canonical(const Problem& problem) noexcept {
  Problem same = problem;
  if (is_gradient_alone(same.operation) && same.reduction == Reduction::sum) same.reduction = Reduction::none;
  if (same.upstream == Upstream::rows && same.rows == 1) same.upstream = Upstream::scalar;
  return same;
}

/// The fewest bytes any implementation must move through memory.
struct Traffic {
  std::int64_t read = 0, written = 0;
  [[nodiscard]] std::int64_t total() const noexcept { return read + written; }
};
[[nodiscard]] Traffic traffic(const Problem& problem) noexcept;

/// 32-bit words that a rank tells the others about each row.
[[nodiscard]] int statistics_words(const Problem& problem) noexcept;

/// Blocks of the kernel that adds the losses up.
[[nodiscard]] std::int64_t sum_blocks(std::int64_t rows) noexcept;

/// Bytes of the workspace that a call needs; 0 for none.
[[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) noexcept;

/// All that the generated code depends on, as words: "cross_entropy bf16 target=i64 loss=f32 mean gradient
/// in_place cols=4096 align=vector". Rows are not in it, though fuses_sums() asks for them.
[[nodiscard]] std::string code_text(const Problem& problem);

/// code_text() with the rows bucket and the measuring policy: the problem's half of the lookup key.
[[nodiscard]] std::string key_text(const Problem& problem);

/// The problem that key_text() wrote, with as many rows as its bucket holds.
/// \throws InvalidArgument for text that key_text() of this version does not write
[[nodiscard]] Problem parse_key_text(std::string_view text);

/// For people: "softmax bf16 8192 x 4096".
[[nodiscard]] std::string title(const Problem& problem);

/// "ce-tune sweep --op softmax --dtype bf16 --rows 64 --cols 1000": the command that tunes it.
[[nodiscard]] std::string sweep_command(const Problem& problem);

/// \throws InvalidArgument for shapes and dtypes that no kernel takes
void validate(const Problem& problem);

}  // namespace ce::generator
