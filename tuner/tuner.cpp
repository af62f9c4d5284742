#include "tuner/tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <span>
#include <utility>

#include "cache/layers.hpp"
#include "ce/error.hpp"
#include "tuner/bench.hpp"
#include "tuner/build_ahead.hpp"
#include "tuner/doubt.hpp"
#include "tuner/key.hpp"
#include "tuner/maker.hpp"
#include "tuner/nearest.hpp"
#include "tuner/quarantine_reason.hpp"
#include "tuner/ranking.hpp"
#include "tuner/remote.hpp"
#include "tuner/search.hpp"
#include "tuner/statistics.hpp"

namespace ce::tuner {
namespace {

/// The configs of one key that were quarantined with current templates, and not measured since.
std::set<std::string> quarantined(std::span<const cache::Measurement> measurements,
                                  generator::Operation operation) {
  std::set<std::string> out;
  for (const cache::Measurement& measurement : measurements) {
    if (!is_current(measurement, operation)) continue;
    if (measurement.outcome == cache::Outcome::quarantined)
      out.insert(measurement.config);
    else
      out.erase(measurement.config);
  }
  return out;
}

}  // namespace

Settings Settings::for_device(const runtime::Model& model) {
  Settings settings{.budget_s = 2};
  if (model.is_host()) {
    settings.budget_s = 0;
    settings.search = {.structures = 8,
                       .refined = 1,
                       .drawn = 12,
                       .most_configs = 12,
                       .semifinalists = 3,
                       .semifinal_samples = 3,
                       .finalists = 3,
                       .final_samples = 5,
                       .play_off = {}};
    settings.scratch_bytes = std::int64_t{256} << 20;
  }
  return settings;
}

Tuner::Tuner(runtime::Device& device, cache::Cache& cache, const Settings& settings)
    : device_(device), cache_(cache), settings_(settings) {}

Tuner::~Tuner() = default;

cache::Key Tuner::key(const generator::Problem& problem) const { return key_of(problem, device_.model()); }

std::optional<Decision> Tuner::known_winner(const generator::Problem& problem) const {
  const cache::Key wanted = key(problem);
  auto own = decide(cache_, wanted, problem);
  if (own && !own->pinned.empty()) return own;
  const auto known_to = [&](const cache::Layer& layer) -> std::optional<Decision> {
    auto decision = decide(layer.cache, wanted, problem);
    if (!has_final(decision)) return std::nullopt;
    if (quarantined(cache_.measurements(wanted), problem.operation).contains(decision->winner.text()))
      return std::nullopt;
    decision->reason += fmt::format("; from the {} layer", layer.name);
    return decision;
  };
  if (cache::names_layers())
    for (const cache::Layer& layer : cache_.lower())
      if (layer.cache.pin(wanted))
        if (auto decision = known_to(layer); decision && !decision->pinned.empty()) return decision;
  if (is_finished(own)) return own;
  std::optional<Decision> unfinished;  // of the nearest layer
  for (const cache::Layer& layer : cache_.lower()) {
    auto decision = known_to(layer);
    if (!decision) continue;
    if (is_finished(decision)) return decision;
    if (!unfinished) unfinished = std::move(decision);
  }
  return unfinished && !has_final(own) ? unfinished : own;
}

bool Tuner::is_of_short_memory(const generator::Problem& problem, const Decision& decision) const {
  return tuner::is_of_short_memory(device_, settings_, problem, decision.winner.measurement);
}

std::vector<generator::Config> Tuner::likely_configs(const generator::Problem& problem,
                                                     std::size_t most) const {
  const std::vector<Neighbour> near = neighbours(device_, cache_, problem);
  if (near.empty()) return {};
  std::vector<generator::Config> ranked = ranked_space(problem, device_.model(), near);
  ranked.resize(std::min(ranked.size(), most));
  return ranked;
}

Tuner::Untried Tuner::untried(const generator::Problem& problem) const {
  Untried found{.ranked = likely_configs(problem, std::numeric_limits<std::size_t>::max()),
                .from_neighbours = true};
  if (found.ranked.empty()) found = {.ranked = safe_defaults(problem, device_.model())};
  const std::set<std::string> out = quarantined(cache_.measurements(key(problem)), problem.operation);
  std::erase_if(found.ranked, [&](const generator::Config& config) {
    return !out.empty() && out.contains(generator::to_text(config));
  });
  if (found.ranked.empty())
    throw Error(ErrorKind::verification,
                fmt::format("all configs for {} are in quarantine", generator::title(problem)));
  return found;
}

std::optional<std::string> Tuner::why_not(const generator::Problem& problem,
                                          const generator::Config& config) const {
  if (auto refusal = generator::why_not(config, problem, limits_of(device_.model()))) return refusal;
  if (quarantined(cache_.measurements(key(problem)), problem.operation).contains(generator::to_text(config)))
    return "it is in quarantine";
  return std::nullopt;
}

void Tuner::finish() { unfinished_.clear(); }

Report Tuner::tune(const generator::Problem& problem, const Hooks& hooks) {
  return report(problem, search(problem, hooks));
}

Effort Tuner::search(const generator::Problem& problem, const Hooks& hooks) {
  generator::validate(problem);
  std::erase_if(unfinished_, [](const auto& builds) { return !builds->is_building(); });
  std::optional<Search> search(std::in_place, device_, cache_, settings_, hooks, problem);
  if (!search->is_over() && ask_remote(problem)) search.emplace(device_, cache_, settings_, hooks, problem);
  const bool was_over = search->is_over();
  search->run();
  if (auto builds = search->unfinished()) unfinished_.push_back(std::move(builds));
  if (!was_over) tell_remote(cache_, key(problem), problem);
  return search->effort();
}

bool Tuner::ask_remote(const generator::Problem& problem) {
  if (settings_.again || settings_.search.strategy == Strategy::exhaustive) return false;
  const cache::Key wanted = key(problem);
  return asked_.insert(wanted.id()).second && tuner::ask_remote(cache_, wanted, problem);
}

std::optional<Report> Tuner::known_report(const generator::Problem& problem) const {
  const Hooks none;
  const Search search(device_, cache_, settings_, none, problem);
  if (!search.is_over()) return std::nullopt;
  return report(problem, search.effort());
}

Report Tuner::report(const generator::Problem& problem, const Effort& effort) const {
  Report report{.problem = problem,
                .key = key(problem),
                .configs = effort.configs,
                .known = effort.known,
                .compiled = effort.compiled,
                .seconds = effort.seconds};
  const std::vector<cache::Measurement> all = cache_.measurements(report.key);
  std::set<std::string> tried;
  for (const cache::Measurement& measurement : all) {
    if (!is_current(measurement, problem.operation)) continue;
    tried.insert(measurement.config);
    if (measurement.outcome == cache::Outcome::quarantined)
      ++report.quarantined[first_line(measurement.reason)];
  }
  report.tried = static_cast<int>(tried.size());
  auto decision = decide(all, problem.operation);
  if (const auto pin = cache_.pin(report.key)) apply_pin(*pin, problem, all, decision);
  if (!decision)
    throw Error(
        ErrorKind::verification,
        fmt::format("none of {} configs for {} gave the correct result; first reason: {}", report.tried,
                    generator::title(problem),
                    report.quarantined.empty() ? "none recorded" : report.quarantined.begin()->first));
  const cache::Measurement& won = decision->winner.measurement;
  report.winner = decision->winner.config;
  report.reason = decision->reason;
  if (decision->pinned.empty()) {
    report.unfinished = has_final(decision) ? unfinished_because(won) : "no final was timed";
    report.is_cut_short = !has_final(decision) || !cut_short_by(won).empty();
  }
  report.median_us = won.median_us;
  report.spread = won.spread;
  report.gbs = gbs_of(won.bytes, won.median_us);
  report.timed_rows = won.rows;
  return report;
}

double Tuner::ceiling(const generator::Problem& problem, const Hooks& hooks) {
  const generator::Operation kind = ceiling_kind(problem);
  const auto known = ceilings_.find(kind);
  if (known != ceilings_.end()) return known->second;
  const double gbs = search_ceiling(kind, hooks) ? time_ceiling(kind) : 0;
  if (gbs > 0) ceilings_[kind] = gbs;
  return gbs;
}

generator::Problem Tuner::ceiling_problem(generator::Operation kind) const {
  generator::Problem problem{.operation = kind, .columns = 4096};
  const std::int64_t bytes = device_.model().is_host() ? std::int64_t{8} << 20 : std::int64_t{1} << 30;
  problem.rows = bytes / (problem.columns * size_of(problem.dtype));
  return problem;
}

bool Tuner::search_ceiling(generator::Operation kind, const Hooks& hooks) {
  if (is_past_end()) return false;
  const generator::Problem problem = ceiling_problem(kind);
  Settings settings = settings_;
  settings.search.strategy = Strategy::exhaustive;
  settings.budget_s = 0;
  const Hooks quiet{.stop = hooks.stop};
  Search search(device_, cache_, settings, quiet, problem);
  search.run();
  if (is_past_end()) return false;  // the fastest of a subset would be too low a ceiling
  if (known_winner(problem)) return true;
  throw Error(ErrorKind::verification,
              fmt::format("no kernel can measure the ceiling of {}", generator::name(kind)));
}

double Tuner::time_ceiling(generator::Operation kind) {
  if (is_past_end()) return 0;
  const generator::Problem problem = ceiling_problem(kind);
  const auto decision = known_winner(problem);
  if (!decision)
    throw Error(ErrorKind::verification,
                fmt::format("the ceiling of {} has no winner", generator::name(kind)));
  // The winner is timed again: the ceiling of this run, not of the day it was first measured.
  Bench bench(device_, cache_, problem, settings_.scratch_bytes, settings_.seed);
  const Kernel kernel(device_, build(device_, cache_, problem, decision->winner.config));
  cache::Measurement again;
  bench.time(kernel, settings_.search.final_samples, again);
  double best_us = again.median_us;
  if (kind == generator::Operation::copy)
    best_us = std::min(best_us, bench.time_driver_copy(settings_.search.final_samples));
  return gbs_of(again.bytes, best_us);
}

}  // namespace ce::tuner
