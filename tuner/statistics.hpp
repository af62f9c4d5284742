#pragma once
/// \file
/// Statistics of samples.

#include <cstddef>
#include <cstdint>
#include <span>

namespace ce::tuner {

[[nodiscard]] double median(std::span<const float> samples);

/// Mean of the middle half: in steps as fine as there are samples, where those are in steps of a clock.
[[nodiscard]] double middle_mean(std::span<const float> samples);

/// Interquartile range over median; 0 for fewer than two samples.
[[nodiscard]] double spread(std::span<const float> samples);

/// The standard error, relative, of a median of so many independent normal samples with that spread; 0 for none.
[[nodiscard]] double error_of_median(double spread, std::size_t samples);

/// 1e9 bytes a second; 0 where no time is known.
[[nodiscard]] inline double gbs_of(std::int64_t bytes, double us) noexcept {
  return us > 0 ? static_cast<double>(bytes) / us * 1e-3 : 0;
}

/// The most that times of the same work may differ, relative to the median: beyond it the machine was disturbed.
inline constexpr double most_drift = 0.05;

/// Whether the machine was as fast as it usually is.
[[nodiscard]] inline bool is_steady(float reference_us, std::span<const float> references_us) {
  return reference_us <= (1 + most_drift) * median(references_us);
}

}  // namespace ce::tuner
