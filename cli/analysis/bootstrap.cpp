#include "cli/analysis/bootstrap.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>

#include "tuner/statistics.hpp"

namespace ce::tuner {

std::vector<double> resampled_medians(std::span<const float> samples, int draws, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<float> drawn(samples.size());
  std::vector<double> medians(static_cast<std::size_t>(draws));
  for (double& found : medians) {
    // Not a distribution of the standard library, as implementations differ; the modulo bias is negligible.
    for (float& sample : drawn) sample = samples[engine() % samples.size()];
    found = median(drawn);
  }
  return medians;
}

Interval middle(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  const auto at = [&](double rank) { return values[static_cast<std::size_t>(rank)]; };
  return {at(std::floor(last * (1 - share) / 2)), at(std::ceil(last * (1 + share) / 2))};
}

}  // namespace ce::tuner
