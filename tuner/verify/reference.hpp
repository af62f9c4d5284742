#pragma once
/// \file
/// The operations in f64, as plainly as they can be written.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ce/dtype.hpp"
#include "generator/operations/cross_entropy.hpp"
#include "templates/arguments.cuh"

namespace ce::generator {

/// y = exp(x - max) / sum over one row; all NaN where the row holds NaN, +infinity, or nothing but -infinity.
void softmax_row(std::span<const double> x, std::span<double> y);

/// y = x - log sum exp x; NaN where softmax_row() gives NaN.
void log_softmax_row(std::span<const double> x, std::span<double> y);

/// dx = y (dy - sum of dy y), from the output of softmax and its gradient.
void softmax_backward_row(std::span<const double> dy, std::span<const double> y, std::span<double> dx);

/// dx = dy - exp(y) (sum of dy), from the output of log_softmax and its gradient.
void log_softmax_backward_row(std::span<const double> dy, std::span<const double> y, std::span<double> dx);

/// Whether logits can be multiplied with it; a row without a scale is NaN.
constexpr bool is_scale(double scale) { return scale >= 0x1p-60 && scale <= 0x1p60; }

/// What cross entropy is computed from. Matrices are [rows, columns], dense.
struct CrossEntropyInputs {
  std::int64_t columns = 0;
  std::span<const double> logits;
  std::span<const std::int64_t> targets;  ///< [rows]: class indices; empty with probabilities
  std::span<const double> probabilities;  ///< [rows, columns]
  std::span<const double> weights;        ///< [columns]; empty: ones
  std::span<const double> upstream;       ///< [rows] or [1]; empty: one
  std::span<const double> lse;            ///< [rows], of the transformed logits; empty: found from them
  std::span<const double> logprob;  ///< [rows], with lse: log-probabilities of the targets; empty: from lse
  std::span<const double> lse_low;  ///< [rows], with lse: what that lost when it was rounded; empty: nothing
  std::span<const double> entropy;  ///< [rows], with lse: of the gradient of the entropy
  std::span<const double> row_weights;                     ///< [rows]; empty: ones
  std::span<const double> row_scales;                      ///< [rows], of the logits; empty: ones
  std::span<const double> entropy_upstream, lse_upstream;  ///< [rows]; empty: none
  std::int64_t ignore_index = -100;
  Reduction reduction = Reduction::none;
  CrossEntropyAmounts<double> amounts;
  double divisor = 0;  ///< of the mean; 0: what is counted
  bool gradient = true;
};

/// The amounts of options that a kernel is given.
void set_amounts(CrossEntropyInputs& inputs, const Arguments& arguments) noexcept;

struct CrossEntropyReference {
  std::vector<double> losses, z_losses;  ///< [rows]; the losses include the z-losses
  double loss = 0, z_loss = 0;           ///< reduced by mean or sum; of no meaning for none
  std::vector<double> gradient;          ///< [rows, columns]
  /// [rows, columns]: the sum of the absolute values of the terms that the gradient is the sum of, without
  /// the slope of the soft cap. What arithmetic in f32 loses is in proportion to it.
  std::vector<float> gradient_terms;
  /// [rows] each of every output of rows, whether it is asked for or not: the logsumexp of the transformed logits, NaN
  /// where these hold +infinity; argmax as the first NaN, else the first largest logit. What depends on a class is of no
  /// meaning for probabilities.
  std::array<std::vector<double>, cross_entropy_outputs.size()> of_rows;
  std::int64_t bad_targets = 0;    ///< rows whose target is neither a class nor ignore_index
  std::int64_t first_bad_row = 0;  ///< of no meaning where bad_targets is 0

  /// Of those the one whose field that is.
  [[nodiscard]] std::vector<double>& operator[](bool CrossEntropyFlags::*output);
  [[nodiscard]] const std::vector<double>& operator[](bool CrossEntropyFlags::*output) const;
};

/// Loss and gradient of the true class come from the sum over the other classes, so that nothing cancels when
/// its probability is next to 1.
[[nodiscard]] CrossEntropyReference cross_entropy(const CrossEntropyInputs& inputs);

}  // namespace ce::generator
