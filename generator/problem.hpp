#pragma once
/// \file
/// What is asked of a kernel.

#include <cstdint>
#include <string>
#include <string_view>

#include "ce/base/dtype.hpp"

namespace ce::generator {

enum class Operation : std::uint8_t {
  softmax,
  cross_entropy,
  copy,  ///< one read and one write of memory: a ceiling
  read,  ///< one read of memory: a ceiling
};

[[nodiscard]] std::string_view name(Operation operation) noexcept;
/// \throws InvalidArgument naming `argument` and the operations that exist
[[nodiscard]] Operation parse_operation(std::string_view text, std::string_view argument = "operation");

/// How the rows of the tensors lie with respect to 16-byte boundaries; decides how a kernel may vectorise.
enum class Alignment : std::uint8_t {
  vector,   ///< every row of every tensor starts on a boundary
  shifted,  ///< rows start anywhere, but a row of the output at the same distance from a boundary as that of
            ///< the input
  element,  ///< neither
};

[[nodiscard]] std::string_view name(Alignment alignment) noexcept;

/// The address of a tensor's first row and the distance between rows, as far as Alignment cares.
struct RowPlacement {
  std::uint64_t address = 0;
  std::int64_t stride_bytes = 0;
};

[[nodiscard]] Alignment alignment_of(std::int64_t rows, const RowPlacement& input,
                                     const RowPlacement& output) noexcept;

/// The operation with its options, dtypes and shape: everything that may change which kernel is fastest.
/// Fields that the operation does not have stay at their defaults, so that equal problems compare equal.
struct Problem {
  Operation operation = Operation::softmax;
  DType dtype = DType::f32;         ///< of input and output
  DType target_dtype = DType::i64;  ///< cross_entropy
  DType loss_dtype = DType::f32;    ///< cross_entropy
  Reduction reduction = Reduction::none;
  bool gradient = false;  ///< cross_entropy: the gradient of the logits is written too
  bool in_place = false;  ///< the output is the input
  Alignment alignment = Alignment::vector;
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  friend bool operator==(const Problem&, const Problem&) = default;
};

/// Whether anything is written per element.
[[nodiscard]] bool has_output(const Problem& problem) noexcept;

/// Rows whose winners are taken to be the same: the next power of two.
[[nodiscard]] std::int64_t rows_bucket(std::int64_t rows) noexcept;

/// The problem that stands for its bucket of rows.
[[nodiscard]] Problem bucketed(Problem problem) noexcept;

/// The fewest bytes any implementation must move through memory.
struct Traffic {
  std::int64_t read = 0, written = 0;
  [[nodiscard]] std::int64_t total() const noexcept { return read + written; }
};
[[nodiscard]] Traffic traffic(const Problem& problem) noexcept;

/// Blocks of the kernel that adds the losses up.
[[nodiscard]] std::int64_t sum_blocks(std::int64_t rows) noexcept;

/// Bytes of the workspace that a call needs; 0 for none.
[[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) noexcept;

/// All that the generated code depends on, as words: "cross_entropy bf16 target=i64 loss=f32 mean gradient
/// in_place cols=4096 align=vector". Rows are not in it.
[[nodiscard]] std::string code_text(const Problem& problem);

/// code_text() with the rows bucket and the measuring policy: the problem's half of the lookup key.
[[nodiscard]] std::string key_text(const Problem& problem);

/// The problem that key_text() wrote, with as many rows as its bucket holds.
/// \throws InvalidArgument for text that key_text() of this version does not write
[[nodiscard]] Problem parse_key_text(std::string_view text);

/// For people: "softmax bf16 8192 x 4096".
[[nodiscard]] std::string title(const Problem& problem);

/// \throws InvalidArgument for shapes and dtypes that no kernel takes
void validate(const Problem& problem);

}  // namespace ce::generator
