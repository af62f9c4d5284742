#pragma once
/// \file
/// Of samples.

#include <span>

namespace ce::tuner {

[[nodiscard]] double median(std::span<const float> samples);

/// Interquartile range over median; 0 for fewer than two samples.
[[nodiscard]] double spread(std::span<const float> samples);

}  // namespace ce::tuner
