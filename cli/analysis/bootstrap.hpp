#pragma once
/// \file
/// Bootstrap intervals of medians.

#include <cstdint>
#include <span>
#include <vector>

namespace ce::tuner {

/// The interval that contains a figure in the given share of all resamplings.
struct Interval {
  double low = 0, high = 0;

  [[nodiscard]] bool contains(double value) const noexcept { return low <= value && value <= high; }
};

/// Medians of `draws` resamplings with replacement, each as large as `samples`: the distribution of the median (Efron,
/// 1979). Equal seeds give equal draws.
/// \param samples  at least one
[[nodiscard]] std::vector<double> resampled_medians(std::span<const float> samples, int draws,
                                                    std::uint64_t seed);

/// The middle `share` of the values, by percentiles.
[[nodiscard]] Interval middle(std::vector<double> values, double share);

}  // namespace ce::tuner
