#include "cli/analysis/explain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "generator/config.hpp"
#include "generator/constraints.hpp"
#include "generator/variant.hpp"
#include "runtime/model_key.hpp"
#include "tuner/kernel.hpp"
#include "tuner/maker.hpp"
#include "tuner/statistics.hpp"

namespace ce::tuner {
namespace {

using cache::Measurement;
using generator::Config;

int resident_warps(const Candidate& candidate, const generator::Problem& problem,
                   const runtime::Model& model) {
  constexpr int lanes = 32, granule = 256;  // registers are allocated to warps, in these granules
  constexpr int most_blocks = 32;
  const Config& config = candidate.config;
  const int registers = candidate.measurement.registers;
  constexpr int most_registers = 255;
  if (registers <= 0 || registers > most_registers || config.warps == 0) return 0;
  const int of_warp = (registers * lanes + granule - 1) / granule * granule;
  const int shared = generator::variant(config.variant).shared_bytes(config, problem) +
                     generator::shared_bytes_of_the_system;
  const int blocks = std::min({most_blocks, model.registers_per_multiprocessor / (of_warp * config.warps),
                               model.threads_per_multiprocessor / (lanes * config.warps),
                               model.shared_bytes_per_multiprocessor / shared});
  return blocks * config.warps;
}

/// Adds the configs that are comparable with the winner: those of its final or, without one, with equal rows.
void add_finalists(Explanation& explanation) {
  const std::vector<Candidate>& ranking = explanation.decision.ranking;
  const Measurement& winner = ranking.front().measurement;
  double fastest_us = winner.median_us;
  std::vector<std::vector<double>> medians;
  for (const Candidate& candidate : ranking) {
    const Measurement& measurement = candidate.measurement;
    if (measurement.stage != winner.stage || measurement.rows != winner.rows ||
        (winner.stage > 0 && measurement.created_at != winner.created_at) || measurement.samples_us.empty())
      continue;
    fastest_us = std::min(fastest_us, measurement.median_us);
    medians.push_back(resampled_medians(measurement.samples_us, resamplings, medians.size() + 1));
    explanation.finalists.push_back(
        {.candidate = candidate, .behind = measurement.median_us / winner.median_us - 1});
  }
  for (std::size_t i = 0; i < medians.size(); ++i) {
    std::vector<double> behind(resamplings);
    for (std::size_t draw = 0; draw < behind.size(); ++draw)
      behind[draw] = medians[i][draw] / medians[0][draw] - 1;
    Finalist& finalist = explanation.finalists[i];
    finalist.interval = middle(std::move(behind), confidence);
    finalist.tied = finalist.candidate.measurement.median_us <= fastest_us * (1 + tie);
  }
  for (std::size_t draw = 0; !medians.empty() && draw < resamplings; ++draw) {
    double fastest = medians[0][draw];
    for (const std::vector<double>& others : medians) fastest = std::min(fastest, others[draw]);
    explanation.fastest += medians[0][draw] <= fastest ? 1. / resamplings : 0;
    explanation.near_fastest += medians[0][draw] <= fastest * (1 + tie) ? 1. / resamplings : 0;
  }
}

std::string ties_of(const std::vector<Finalist>& finalists) {
  std::vector<int> others;
  for (const Finalist& finalist : finalists)
    if (finalist.tied) others.push_back(finalist.candidate.measurement.registers);
  if (others.size() < 2) return {};
  const int own = finalists.front().candidate.measurement.registers;
  others.erase(others.begin());
  const std::string tied =
      fmt::format("{} configs are within {:.1f}% of the fastest median", others.size() + 1, tie * 100);
  std::sort(others.begin(), others.end());
  if (others.front() > own)
    return fmt::format("{}; the winner has the fewest registers, {}; the others have {}", tied, own,
                       fmt::join(others, ", "));
  return fmt::format(
      "{}; {} of them have the fewest registers, {}, and of these the winner's text comes first in "
      "alphabetical order",
      tied, 1 + std::count(others.begin(), others.end(), own), own);
}

/// Times of configs, by stage and rows: others are not comparable.
class Times {
 public:
  Times(std::span<const Measurement> measurements, const Decision& decision) {
    std::set<std::string> counting;
    std::map<std::string, std::string> digests;
    for (const Candidate& candidate : decision.ranking) {
      counting.insert(candidate.text());
      digests[candidate.text()] = candidate.measurement.template_digest;
    }
    for (const Measurement& measurement : measurements)
      if (counting.contains(measurement.config) && measurement.outcome == cache::Outcome::measured &&
          measurement.stage != cache::stage_of_checks &&
          measurement.template_digest == digests.at(measurement.config))
        rounds_[{measurement.stage, measurement.rows}][measurement.config] = measurement.median_us;
  }

  /// The time of `other` over that of `config`, in the highest stage that has both, with the most rows.
  [[nodiscard]] std::optional<double> ratio(const std::string& other, const std::string& config) const {
    for (const auto& [stage_and_rows, times] : rounds_) {
      const auto a = times.find(other), b = times.find(config);
      if (a != times.end() && b != times.end()) return a->second / b->second;
    }
    return std::nullopt;
  }

 private:
  std::map<std::pair<int, std::int64_t>, std::map<std::string, double>, std::greater<>> rounds_;
};

std::vector<Coverage> coverage_of(std::span<const Measurement> measurements, const Decision& decision,
                                  const generator::Problem& problem, const runtime::Model& model) {
  std::set<std::string> tried;
  for (const Measurement& measurement : measurements)
    if (is_current(measurement, problem.operation)) tried.insert(measurement.config);
  std::map<std::string, double> best_us;  // the ranking has the best first
  for (const Candidate& candidate : decision.ranking)
    if (candidate.measurement.rows == decision.winner.measurement.rows)
      best_us.try_emplace(candidate.config.variant, candidate.measurement.median_us);

  std::vector<Coverage> coverage;
  for (const generator::Variant& variant : generator::variants()) {
    if (!variant.serves(problem)) continue;
    Coverage own{.variant = std::string(variant.name)};
    const generator::Limits limits = limits_of(model);
    for (const Config& config : variant.points()) {
      ++own.points;
      if (variant.rejects(config, problem, limits)) continue;
      ++own.configs;
      own.tried += tried.contains(generator::to_text(config)) ? 1 : 0;
    }
    if (const auto best = best_us.find(own.variant); best != best_us.end()) own.best_us = best->second;
    coverage.push_back(std::move(own));
  }
  return coverage;
}

}  // namespace

std::vector<AxisEffect> axis_effects(std::span<const Measurement> measurements, const Decision& decision) {
  const Times times(measurements, decision);
  const Config& winner = decision.winner.config;
  std::vector<const Candidate*> candidates;  // configs of the winner's variant
  for (const Candidate& candidate : decision.ranking)
    if (candidate.config.variant == winner.variant) candidates.push_back(&candidate);
  std::vector<AxisEffect> effects;
  for (const generator::Axis* axis : generator::variant(winner.variant).axes()) {
    std::map<int, std::pair<AxisEffect, std::vector<float>>> others;
    for (const Candidate* candidate : candidates) {
      const int value = candidate->config.*axis->value;
      if (value == winner.*axis->value) continue;
      Config config = candidate->config;
      config.*axis->value = winner.*axis->value;
      const std::optional<double> ratio = times.ratio(candidate->text(), generator::to_text(config));
      if (!ratio) continue;
      auto& [effect, ratios] = others[value];
      ratios.push_back(static_cast<float>(*ratio - 1));
      if (config == winner) effect.at_winner = *ratio - 1;
    }
    for (auto& [value, found] : others) {
      auto& [effect, ratios] = found;
      effect.axis = axis->name;
      effect.value = generator::value_text(*axis, winner.*axis->value);
      effect.other = generator::value_text(*axis, value);
      effect.median = median(ratios);
      effect.pairs = static_cast<int>(ratios.size());
      effects.push_back(std::move(effect));
    }
  }
  return effects;
}

int Explanation::configs() const noexcept {
  int sum = 0;
  for (const Coverage& variant : coverage) sum += variant.configs;
  return sum;
}

int Explanation::tried() const noexcept {
  int sum = 0;
  for (const Coverage& variant : coverage) sum += variant.tried;
  return sum;
}

std::optional<Explanation> explain(std::span<const Measurement> measurements, const cache::Key& key,
                                   const generator::Problem& problem) {
  auto decision = decide(measurements, problem.operation);
  if (!decision) return std::nullopt;
  Explanation explanation{.decision = *std::move(decision)};
  add_finalists(explanation);
  explanation.ties = ties_of(explanation.finalists);
  explanation.effects = axis_effects(measurements, explanation.decision);
  if (const auto model = runtime::parse_model_key(key.device)) {
    explanation.coverage = coverage_of(measurements, explanation.decision, problem, *model);
    for (Finalist& finalist : explanation.finalists)
      finalist.resident_warps = resident_warps(finalist.candidate, problem, *model);
  }
  return explanation;
}

}  // namespace ce::tuner
