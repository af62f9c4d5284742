#include "tuner/nearest.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "cache/layers.hpp"
#include "tuner/decide.hpp"
#include "tuner/key.hpp"

namespace ce::tuner {
namespace {

using generator::Problem;

}  // namespace

std::optional<double> distance_between(const Problem& a, const Problem& b) {
  constexpr double other_operation = 1, other_dtype = 0.5, other_alignment = 0.5, other_weights = 8,
                   other_cap = 8;
  if (size_of(a.dtype) != size_of(b.dtype) || a.strided != b.strided ||
      generator::inputs(a) != generator::inputs(b) || generator::has_output(a) != generator::has_output(b) ||
      generator::reduces(a) != generator::reduces(b) ||
      generator::is_ceiling(a.operation) != generator::is_ceiling(b.operation))
    return std::nullopt;
  const auto octaves = [](std::int64_t x, std::int64_t y) {
    return std::abs(std::log2(static_cast<double>(x) / static_cast<double>(y)));
  };
  return octaves(a.columns, b.columns) + octaves(a.rows, b.rows) +
         (a.operation != b.operation ? other_operation : 0) + (a.dtype != b.dtype ? other_dtype : 0) +
         (a.alignment != b.alignment ? other_alignment : 0) +
         (generator::reads_all_weights(a) != generator::reads_all_weights(b) ? other_weights : 0) +
         (a.has.softcap != b.has.softcap ? other_cap : 0);
}

std::vector<Neighbour> neighbours(const runtime::Device& device, const cache::Cache& cache,
                                  const Problem& problem, std::size_t most) {
  const std::string model = device.model().key(), own = generator::key_text(problem);
  std::vector<const cache::Cache*> layers{&cache};
  for (const cache::Layer& layer : cache.lower()) layers.push_back(&layer.cache);
  struct Near {
    const cache::Cache* layer;
    cache::Key key;
    Neighbour neighbour;
  };
  std::vector<Near> near;
  for (const cache::Cache* layer : layers)
    for (cache::KeySummary& summary : layer->keys()) {
      if (summary.key.device != model || summary.key.problem == own) continue;
      const auto known = problem_of(summary.key);
      if (!known) continue;
      if (const auto distance = distance_between(*known, generator::bucketed(problem)))
        near.push_back({.layer = layer,
                        .key = std::move(summary.key),
                        .neighbour = {.problem = *known, .distance = *distance}});
    }
  std::stable_sort(near.begin(), near.end(),
                   [](const Near& a, const Near& b) { return a.neighbour.distance < b.neighbour.distance; });
  std::vector<Neighbour> found;
  std::set<std::string> seen;  // configs seen in a nearer layer
  for (auto& [layer, key, neighbour] : near) {
    if (found.size() == most) break;
    if (seen.contains(key.problem)) continue;
    const auto decision = decide(layer->measurements(key), neighbour.problem.operation);
    if (!decision) continue;
    seen.insert(key.problem);
    const cache::Measurement& best = decision->winner.measurement;
    if (best.rows > 0) {
      neighbour.problem.rows = best.rows;
      neighbour.distance = *distance_between(neighbour.problem, problem);
    }
    // Times with other rows cannot be compared with the winner's, and a median of few samples may be small by chance.
    for (const auto& [config, measurement] : decision->ranking)
      if (measurement.rows == best.rows)
        neighbour.losses.emplace_back(config, std::log(std::max(1., measurement.median_us / best.median_us)));
    found.push_back(std::move(neighbour));
  }
  return found;
}

}  // namespace ce::tuner
