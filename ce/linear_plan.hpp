#pragma once
/// \file
/// The layout of a LinearCrossEntropy call's scratch memory, which decides its chunks. Not installed.

#include <cstdint>
#include <vector>

#include "ce/linear.hpp"
#include "ce/linear_shape.hpp"

namespace ce {

/// Alignment of the workspace, and of each piece of it.
inline constexpr std::int64_t piece_alignment = 256;

/// The bytes of a piece, rounded up to its alignment.
[[nodiscard]] std::int64_t bytes_of_piece(std::int64_t bytes) noexcept;

/// A piece of the workspace.
struct LinearPiece {
  std::int64_t start = 0, bytes = 0;

  [[nodiscard]] bool exists() const noexcept { return bytes > 0; }
};

struct LinearPlan {
  LinearSchedule schedule;
  int parts = 1;  ///< its chunks have 1 / parts of the largest chunk's tokens
  /// `logits` holds the chunk's logits, their gradient or their exponentials.
  LinearPiece valid_tokens, hidden, hidden_grad, statistics, logits, rounded_logits, weight_sum, bias_sum,
      bias, class_weight, divisor, upstream, losses, z_losses, products;
  /// Pieces for exponentials, named like members of LinearExponentialsArguments.
  LinearPiece reference, raised, maxima, row_factor, target_factor, order, classes_in_order, scaled_hidden;
  /// Pieces for exponentials, if the shape needs them.
  LinearPiece hidden_product;
};

/// The plan with the largest chunks of about equal size; made of logits unless the caller asks for exponentials.
/// \param budget  bytes of scratch memory
[[nodiscard]] LinearPlan plan_for(const LinearShape& shape, std::int64_t budget);

/// Plans that are worth timing: first plan_for(), then chunks of a half, a quarter and an eighth of its tokens; if
/// exponentials may be faster, also the largest chunks and half of them with exponentials. No plan exceeds the budget,
/// or rounds the sums of the weight's gradient more often than the first. Only plan_for() if the caller has chosen the
/// chunks, or if there are no tokens.
[[nodiscard]] std::vector<LinearPlan> plans_for(const LinearShape& shape, std::int64_t budget);

/// The chunk size if ranks share the classes: equal on every rank for any number of own classes.
[[nodiscard]] std::int64_t chunk_of_ranks(const LinearShape& shape, int ranks);

}  // namespace ce
