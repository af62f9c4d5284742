#include <algorithm>
#include <cmath>
#include <utility>

#include "ce/base/error.hpp"
#include "tuner/tuner.hpp"

namespace ce::tuner {
namespace {

/// Nothing for a key whose text another version of the library wrote.
std::optional<generator::Problem> problem_of(const cache::Key& key) {
  try {
    return generator::parse_key_text(key.problem);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<generator::Config> Tuner::nearest_winner(const generator::Problem& problem) const {
  const std::string device = device_.model().key();
  const generator::Limits limits = limits_of(device_.model());
  std::vector<std::pair<double, generator::Problem>> near;
  for (const cache::KeySummary& summary : cache_.keys()) {
    if (summary.key.device != device) continue;
    const auto parsed = problem_of(summary.key);
    if (!parsed) continue;
    const generator::Problem& known = *parsed;
    if (known.operation != problem.operation || known.dtype != problem.dtype ||
        known.gradient != problem.gradient || known.alignment != problem.alignment)
      continue;
    const auto distance = [](std::int64_t a, std::int64_t b) {
      return std::abs(std::log2(static_cast<double>(a) / static_cast<double>(b)));
    };
    near.emplace_back(distance(known.columns, problem.columns) +
                          0.1 * distance(known.rows, generator::rows_bucket(problem.rows)),
                      known);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [distance, known] : near) {
    const auto decision = known_winner(known);
    if (!decision) continue;
    generator::Config config = generator::parse_config(decision->winner.config);
    if (!generator::variant(config.variant).rejects(config, problem, limits)) return config;
  }
  return std::nullopt;
}

}  // namespace ce::tuner
