#pragma once
/// \file
/// Statistics of samples.

#include <cstddef>
#include <cstdint>
#include <span>

namespace ce::tuner {

[[nodiscard]] double median(std::span<const float> samples);

/// Mean of the middle half of the samples. Unlike a median, it is not limited to the steps of the clock.
[[nodiscard]] double middle_mean(std::span<const float> samples);

/// Interquartile range over median; 0 for fewer than two samples.
[[nodiscard]] double spread(std::span<const float> samples);

/// The relative standard error of a median of that many independent normal samples with that spread; 0 for none.
[[nodiscard]] double error_of_median(double spread, std::size_t samples);

/// 1e9 bytes a second; 0 for a time of 0.
[[nodiscard]] inline double gbs_of(std::int64_t bytes, double us) noexcept {
  return us > 0 ? static_cast<double>(bytes) / us * 1e-3 : 0;
}

/// Times of the same work may differ from their median by this much, relatively; beyond it the machine was disturbed.
inline constexpr double most_drift = 0.05;

/// Whether the machine was as fast as usual.
[[nodiscard]] inline bool is_steady(float reference_us, std::span<const float> references_us) {
  return reference_us <= (1 + most_drift) * median(references_us);
}

}  // namespace ce::tuner
