#pragma once
/// \file
/// The problem that a kernel solves.

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ce/dtype.hpp"
#include "generator/operations/cross_entropy.hpp"
#include "generator/operations/operation.hpp"

namespace ce::generator {

/// Columns are 32-bit integers in the kernels.
inline constexpr std::int64_t most_columns = std::int64_t{1} << 30;
/// Blocks of a one-dimensional grid.
inline constexpr std::int64_t most_rows = (std::int64_t{1} << 31) - 1;

/// How the rows of the tensors are aligned to 16 bytes; determines how a kernel may vectorise.
enum class Alignment : std::uint8_t {
  vector,   ///< every row of every tensor starts on a boundary
  dense,    ///< narrow rows without gaps; only the first row of every tensor starts on a boundary
  shifted,  ///< rows start anywhere, but a row of the output has the same distance from a boundary
            ///< as that of the input
  element,  ///< none of the above
};

inline constexpr std::array alignments{Alignment::vector, Alignment::dense, Alignment::shifted,
                                       Alignment::element};
[[nodiscard]] std::string_view name(Alignment alignment) noexcept;

/// Bytes of the widest rows of Alignment::dense. Wider rows have enough 16-byte vectors wherever they start.
inline constexpr std::int64_t widest_dense_row = 256;

/// The address of a tensor's first row and the distance between rows, as far as Alignment depends on them.
struct RowPlacement {
  std::uint64_t address = 0;
  std::int64_t stride_bytes = 0;
  std::int64_t batch_stride_bytes = 0;  ///< 0 without batches
};

/// \param row_bytes  bytes of a row's elements
/// \param tensors    all tensors that are read or written by rows
[[nodiscard]] Alignment alignment_of(std::int64_t rows, std::int64_t row_bytes,
                                     std::span<const RowPlacement> tensors) noexcept;

/// The gradient of the loss, by which the gradient of the logits is multiplied.
enum class Upstream : std::uint8_t {
  one,     ///< not given
  scalar,  ///< one number
  rows,    ///< one for each row
};

[[nodiscard]] std::string_view name(Upstream upstream) noexcept;

/// The operation with its options, dtypes and shape: everything that may change which kernel is fastest. Members that
/// the operation does not use keep their defaults, so that equal problems compare equal.
struct Problem {
  Operation operation = Operation::softmax;
  DType dtype = DType::f32;  ///< dtype of every [rows, columns] tensor

  // Members of cross entropy. Amounts (how much smoothing, which cap) are arguments of the kernel; only whether a
  // problem has an option changes its code.
  DType target_dtype = DType::i64;  ///< dtype of class indices
  DType loss_dtype = DType::f32;    ///< dtype of loss, z-loss and upstream gradient
  DType weight_dtype = DType::f32;  ///< dtype of class weights
  Reduction reduction = Reduction::none;
  Upstream upstream = Upstream::one;  ///< used if there is a gradient
  bool gradient = false;  ///< the gradient of the logits is written; always true for a backward operation
  bool probabilities = false;  ///< targets are [rows, columns] of `dtype` instead of class indices
  bool weights = false;        ///< there is a weight for each class
  CrossEntropyFlags has;

  bool in_place = false;  ///< the output overwrites the input (backward: the gradient that it reads)
  bool batched = false;   ///< rows are in batches, with one stride inside a batch and another between batches
  bool strided = false;   ///< the elements of a row are not contiguous
  Alignment alignment = Alignment::vector;  ///< Alignment::vector if strided
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  friend bool operator==(const Problem&, const Problem&) = default;
};

/// Whether rows of this shape can have Alignment::dense: at least two rows, up to `widest_dense_row` bytes wide, not a
/// multiple of 16, and without batches.
[[nodiscard]] bool can_be_dense(const Problem& problem) noexcept;
/// Whether every row of every tensor starts on a boundary of vectors of `vec` elements, 16 bytes at most.
/// \param vec  0 if the kernel uses no vectors
[[nodiscard]] bool starts_on_vectors(const Problem& problem, int vec) noexcept;

/// Whether an output has an element for each column.
[[nodiscard]] bool has_output(const Problem& problem) noexcept;

/// Number of [rows, columns] matrices that are read: 1 or 2.
[[nodiscard]] int inputs(const Problem& problem) noexcept;

/// Whether a row needs the weights of all classes, not only that of its target.
[[nodiscard]] bool reads_all_weights(const Problem& problem) noexcept;
/// Whether its options change which configs are fast: the weights of all classes take shared memory, a soft cap takes
/// arithmetic.
[[nodiscard]] bool has_costly_options(const Problem& problem) noexcept;

/// Whether the logsumexps of the rows are an input.
[[nodiscard]] bool reads_lse(const Problem& problem) noexcept;

/// Whether a whole row must be read before any of its outputs is known.
[[nodiscard]] bool reduces(const Problem& problem) noexcept;

/// Whether the entropies of the rows are an input.
[[nodiscard]] bool reads_entropy(const Problem& problem) noexcept;

/// Whether the rows that count, or their weights, must be added up before gradients are known: those of a mean over
/// class indices.
[[nodiscard]] bool counts_first(const Problem& problem) noexcept;

/// Whether losses must be added up.
[[nodiscard]] bool sums_losses(const Problem& problem) noexcept;

/// Whether the kernel of the rows counts and adds up itself, instead of separate kernels before and after it.
[[nodiscard]] bool fuses_sums(const Problem& problem) noexcept;

/// Rows of the problems that share a winner: the next power of two.
[[nodiscard]] constexpr std::int64_t rows_bucket(std::int64_t rows) noexcept {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
}

/// The problem that represents its bucket of rows.
[[nodiscard]] constexpr Problem bucketed(const Problem& problem) noexcept {
  Problem bucket = problem;
  bucket.rows = rows_bucket(problem.rows);
  return bucket;
}

/// The problem as run() looks it up. Two pairs of options need the same kernel: a sum of losses has the same gradients
/// as the losses without reduction, and the upstream gradient of a single row is one number.
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

/// Number of 32-bit words that a rank sends the others for each row.
[[nodiscard]] int statistics_words(const Problem& problem) noexcept;

/// Number of blocks of the kernel that adds up the losses.
[[nodiscard]] std::int64_t sum_blocks(std::int64_t rows) noexcept;

/// Bytes of the workspace that a call needs; 0 if it needs none.
[[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) noexcept;

/// Everything that the generated code depends on, as words: "cross_entropy bf16 target=i64 loss=f32 mean gradient
/// in_place cols=4096 align=vector". Rows are not included, although fuses_sums() depends on them.
[[nodiscard]] std::string code_text(const Problem& problem);

/// code_text() with the rows bucket and the measuring policy: the problem's half of the lookup key.
[[nodiscard]] std::string key_text(const Problem& problem);

/// Parses a text that key_text() wrote; the problem has as many rows as its bucket holds.
/// \throws InvalidArgument for text that key_text() of this version does not write
[[nodiscard]] Problem parse_key_text(std::string_view text);

/// A title for people: "softmax bf16 8192 x 4096".
[[nodiscard]] std::string title(const Problem& problem);

/// The command that tunes the problem: "ce-tune sweep --op softmax --dtype bf16 --rows 64 --cols 1000".
[[nodiscard]] std::string sweep_command(const Problem& problem);

/// Checks a problem. \throws InvalidArgument for shapes and dtypes that no kernel supports
void validate(const Problem& problem);

}  // namespace ce::generator
