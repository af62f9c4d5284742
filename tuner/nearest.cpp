#include "tuner/nearest.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "ce/base/error.hpp"
#include "tuner/decide.hpp"

namespace ce::tuner {
namespace {

using generator::Problem;

/// Nothing for a key whose text another version of the library wrote.
std::optional<Problem> problem_of(const cache::Key& key) {
  try {
    return generator::parse_key_text(key.problem);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

bool are_alike(const Problem& a, const Problem& b) {
  return a.operation == b.operation && a.dtype == b.dtype && a.gradient == b.gradient &&
         a.alignment == b.alignment && a.strided == b.strided;
}

/// Rows matter less than columns: they change how often a kernel does its work, not what it is.
double distance(const Problem& a, const Problem& b) {
  const auto apart = [](std::int64_t x, std::int64_t y) {
    return std::abs(std::log2(static_cast<double>(x) / static_cast<double>(y)));
  };
  return apart(a.columns, b.columns) +
         0.1 * apart(generator::rows_bucket(a.rows), generator::rows_bucket(b.rows));
}

}  // namespace

std::vector<generator::Config> near_winners(const runtime::Device& device, const cache::Cache& cache,
                                            const Problem& problem, std::size_t most) {
  const std::string model = device.model().key(), own = generator::key_text(problem);
  std::vector<std::pair<double, cache::Key>> near;
  for (cache::KeySummary& summary : cache.keys()) {
    if (summary.key.device != model || summary.key.problem == own) continue;
    const auto known = problem_of(summary.key);
    if (known && are_alike(*known, problem))
      near.emplace_back(distance(*known, problem), std::move(summary.key));
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<generator::Config> winners;
  for (const auto& [apart, key] : near) {
    if (winners.size() == most) break;
    const auto decision = decide(cache.measurements(key), problem.operation);
    if (!decision) continue;
    generator::Config winner = generator::parse_config(decision->winner.config);
    if (std::find(winners.begin(), winners.end(), winner) == winners.end())
      winners.push_back(std::move(winner));
  }
  return winners;
}

}  // namespace ce::tuner
