#pragma once
/// \file
/// The operations in f64, in the simplest form.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ce/dtype.hpp"
#include "generator/operations/cross_entropy.hpp"
#include "templates/arguments.cuh"

namespace ce::generator {

/// y = exp(x - max) / sum over one row; all NaN if the row holds NaN, +infinity, or nothing but -infinity.
void softmax_row(std::span<const double> x, std::span<double> y);

/// y = x - log sum exp x; NaN if softmax_row() gives NaN.
void log_softmax_row(std::span<const double> x, std::span<double> y);

/// dx = y (dy - sum of dy y), from the output of softmax and its gradient.
void softmax_backward_row(std::span<const double> dy, std::span<const double> y, std::span<double> dx);

/// dx = dy - exp(y) (sum of dy), from the output of log_softmax and its gradient.
void log_softmax_backward_row(std::span<const double> dy, std::span<const double> y, std::span<double> dx);

/// Whether logits can be multiplied by it; a row with an invalid scale is NaN.
constexpr bool is_scale(double scale) { return scale >= 0x1p-60 && scale <= 0x1p60; }

/// The inputs of cross entropy. Matrices are [rows, columns], dense.
struct CrossEntropyInputs {
  std::int64_t columns = 0;
  std::span<const double> logits;
  std::span<const std::int64_t> targets;  ///< [rows]: class indices; empty with probabilities
  std::span<const double> probabilities;  ///< [rows, columns]; empty with class indices
  std::span<const double> weights;        ///< [columns]; empty: all are 1
  std::span<const double> upstream;       ///< [rows] or [1]; empty: all are 1
  std::span<const double> lse;            ///< [rows], of the transformed logits; empty: computed from them
  std::span<const double> logprob;        ///< [rows], with lse: targets' log-probabilities; empty: from lse
  std::span<const double> lse_low;        ///< [rows], with lse: rounding errors of lse; empty: 0
  std::span<const double> entropy;        ///< [rows], with lse: for the gradient of the entropy
  std::span<const double> row_weights;    ///< [rows]; empty: all are 1
  std::span<const double> row_scales;     ///< [rows], scales of the logits; empty: all are 1
  std::span<const double> entropy_upstream, lse_upstream;  ///< [rows]; empty: none
  std::int64_t ignore_index = -100;
  Reduction reduction = Reduction::none;
  CrossEntropyAmounts<double> amounts;
  double divisor = 0;  ///< divisor of the mean; 0: the number of rows that count, or their weights
  bool gradient = true;
};

/// The options' amounts, from a kernel's arguments.
void set_amounts(CrossEntropyInputs& inputs, const Arguments& arguments) noexcept;

struct CrossEntropyReference {
  std::vector<double> losses, z_losses;  ///< [rows]; the losses include the z-losses
  double loss = 0, z_loss = 0;           ///< reduced by mean or sum; unused with reduction none
  std::vector<double> gradient;          ///< [rows, columns]
  /// [rows, columns]: the sum of the absolute values of the gradient's terms, without the slope of the soft cap. Errors
  /// of f32 arithmetic are proportional to it.
  std::vector<float> gradient_terms;
  /// [rows] for every output of rows, even if not asked for: the logsumexp of the transformed logits, NaN if these hold
  /// +infinity; argmax as the first NaN, else the first largest logit. Outputs that depend on a class are meaningless
  /// with probabilities.
  std::array<std::vector<double>, cross_entropy_outputs.size()> of_rows;
  std::int64_t bad_targets = 0;    ///< rows whose target is neither a class nor ignore_index
  std::int64_t first_bad_row = 0;  ///< meaningless if bad_targets is 0

  /// The values of the output with that flag.
  [[nodiscard]] std::vector<double>& operator[](bool CrossEntropyFlags::*output);
  [[nodiscard]] const std::vector<double>& operator[](bool CrossEntropyFlags::*output) const;
};

/// Loss and gradient of the true class are computed from the sum over the other classes, so that nothing cancels if its
/// probability is next to 1.
[[nodiscard]] CrossEntropyReference cross_entropy(const CrossEntropyInputs& inputs);

}  // namespace ce::generator
