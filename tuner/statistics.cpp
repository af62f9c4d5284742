#include "tuner/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ce::tuner {
namespace {

/// Linear interpolation between the two nearest ranks.
double quantile(const std::vector<float>& sorted, double q) {
  const double rank = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = rank - static_cast<double>(below);
  return static_cast<double>(sorted[below]) * (1 - part) + static_cast<double>(sorted[above]) * part;
}

std::vector<float> sorted(std::span<const float> samples) {
  std::vector<float> copy(samples.begin(), samples.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

}  // namespace

double median(std::span<const float> samples) { return samples.empty() ? 0 : quantile(sorted(samples), 0.5); }

double spread(std::span<const float> samples) {
  if (samples.size() < 2) return 0;
  const std::vector<float> ordered = sorted(samples);
  return (quantile(ordered, 0.75) - quantile(ordered, 0.25)) / quantile(ordered, 0.5);
}

}  // namespace ce::tuner
