#pragma once
/// \file
/// How far a median is to be trusted.

#include <cstdint>
#include <span>
#include <vector>

namespace ce::tuner {

/// The bounds between which a figure lies in the given share of all resamplings.
struct Interval {
  double low = 0, high = 0;

  [[nodiscard]] bool contains(double value) const noexcept { return low <= value && value <= high; }
};

/// Medians of as many samples, drawn from these with replacement, `draws` times: how the median might have
/// come out (Efron, 1979). The same seed draws the same.
/// \param samples  one at least
[[nodiscard]] std::vector<double> resampled_medians(std::span<const float> samples, int draws,
                                                    std::uint64_t seed);

/// The middle `share` of the values, by their percentiles.
[[nodiscard]] Interval middle(std::vector<double> values, double share);

}  // namespace ce::tuner
