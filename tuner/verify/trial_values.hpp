#pragma once
/// \file
/// Generators of trial inputs.

#include <cstdint>
#include <span>

#include "ce/dtype.hpp"

namespace ce::generator {

/// The ignored targets of a trial.
inline constexpr std::int64_t trial_ignore_index = -100;

/// SplitMix64 (Steele, Lea and Flood, 2014): fast enough for millions of values per trial.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t next() noexcept {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
  }
  /// 0, 1, ... n - 1
  std::int64_t below(std::int64_t n) noexcept {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(n));
  }

 private:
  std::uint64_t state_;
};

/// Normal deviates from a table of 4096 with mean 0 and standard deviation 2. A wide row has many equal ones, so its
/// maximum occurs more than once.
void fill_normal(std::span<double> row, Random& random);

/// Rows of logits with one kind of difficulty after the other, to expose overflows, wrong guards and lost NaNs.
struct Extremes {
  double largest = 1;       ///< magnitude of the large values
  double lowest = -1;       ///< the lowest finite value
  bool saturating = false;  ///< moderate values, where a soft cap would make large ones equal
};
void fill_extreme(std::span<double> row, std::int64_t index, const Extremes& extremes, Random& random);

/// A magnitude that the dtype can hold and that overflows exp() many times over.
[[nodiscard]] double large_logit(DType dtype) noexcept;

/// Transformed logits around 0, of which the others are 10^-nines times as probable as the target.
void fill_confident(std::span<double> row, double nines, std::int64_t target, Random& random);

/// Probabilities of the classes: spread over all of them or, in every other row, over three.
void fill_probabilities(std::span<double> row, std::int64_t index, Random& random);

/// Approximate results of softmax or log_softmax for that many classes with ordinary logits.
void fill_softmax_output(std::span<double> row, std::int64_t columns, bool logarithm, Random& random);

/// Gradients, and outputs with a probability of 1 or 0, for the backward operations of softmax.
void fill_extreme_gradient(std::span<double> dy, std::span<double> y, std::int64_t index, bool logarithm,
                           double largest, Random& random);

/// Weights of the classes between 0.25 and 2; some are 0.
void fill_weights(std::span<double> weights, Random& random);

/// Scales of rows: powers of two, so that products are exact; with `bad`, also invalid scales.
void fill_scales(std::span<double> scales, bool bad, Random& random);

/// Gradients of losses: -1.5 to 2, never 0.
void fill_upstream(std::span<double> upstream, Random& random);

/// Targets at both ends and in between, some ignored; with `bad`, some that are no class.
[[nodiscard]] std::int64_t target_for(std::int64_t row, std::int64_t columns, bool bad, Random& random);

}  // namespace ce::generator
