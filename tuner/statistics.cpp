#include "tuner/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace ce::tuner {
namespace {

/// Linear interpolation between the two nearest ranks.
double quantile(const std::vector<float>& sorted, double q) {
  const double rank = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double fraction = rank - static_cast<double>(below);
  return static_cast<double>(sorted[below]) * (1 - fraction) + static_cast<double>(sorted[above]) * fraction;
}

std::vector<float> sorted(std::span<const float> samples) {
  std::vector<float> copy(samples.begin(), samples.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

}  // namespace

double median(std::span<const float> samples) { return samples.empty() ? 0 : quantile(sorted(samples), 0.5); }

double middle_mean(std::span<const float> samples) {
  if (samples.empty()) return 0;
  const std::vector<float> ordered = sorted(samples);
  const auto left_out = static_cast<std::ptrdiff_t>(ordered.size() / 4);
  const double sum = std::accumulate(ordered.begin() + left_out, ordered.end() - left_out, 0.);
  return sum / static_cast<double>(ordered.size() - 2 * static_cast<std::size_t>(left_out));
}

double spread(std::span<const float> samples) {
  if (samples.size() < 2) return 0;
  const std::vector<float> ordered = sorted(samples);
  return (quantile(ordered, 0.75) - quantile(ordered, 0.25)) / quantile(ordered, 0.5);
}

double error_of_median(double spread, std::size_t samples) {
  constexpr double of_median = 1.2533, range_of_normal = 1.349;
  return samples > 0 ? of_median / range_of_normal * spread / std::sqrt(static_cast<double>(samples)) : 0;
}

}  // namespace ce::tuner
