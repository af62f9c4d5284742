#include "tuner/tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "ce/base/error.hpp"
#include "ce/base/log.hpp"
#include "tuner/bench.hpp"
#include "tuner/build_ahead.hpp"
#include "tuner/verify.hpp"

namespace ce::tuner {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Spills of a few registers may still win; arrays in local memory never do.
constexpr int most_local_bytes = 256;

/// Every k-th config so that `most` remain, the safe default among them.
std::vector<generator::Config> thinned(std::vector<generator::Config> configs, int most,
                                       const generator::Config& always) {
  const auto count = static_cast<std::size_t>(most);
  if (most <= 0 || configs.size() <= count) return configs;
  std::vector<generator::Config> kept{always};
  for (std::size_t i = 0; kept.size() < count && i < count; ++i) {
    const generator::Config& config = configs[i * configs.size() / count];
    if (!(config == always)) kept.push_back(config);
  }
  return kept;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

/// What one tuning carries from stage to stage.
struct Tuner::Candidates {
  generator::Problem problem;
  cache::Key key;
  std::vector<generator::Config> configs;  ///< the space that is searched
  std::vector<generator::Config> unknown;  ///< of these, what the database knows nothing of
  runtime::Evidence evidence;
  std::map<std::string, std::string> digests;  ///< of the templates, by variant
  Clock::time_point start = Clock::now();
  int compiled = 0;
  std::map<std::string, Built> built;  ///< of the configs measured by this tuning
  std::string best;
  double best_us = 0;
  std::int64_t best_bytes = 0;

  [[nodiscard]] cache::Measurement measurement(const generator::Config& config) const {
    return {.key = key,
            .config = generator::to_text(config),
            .template_digest = digests.at(config.variant),
            .evidence = evidence};
  }
  void note(const cache::Measurement& measurement) {
    if (!best.empty() && best_us <= measurement.median_us) return;
    best = measurement.config;
    best_us = measurement.median_us;
    best_bytes = measurement.bytes;
  }
  void tell(const Hooks& hooks, const std::string& stage, std::size_t done, std::size_t total) const {
    if (!hooks.progress) return;
    hooks.progress({.stage = stage,
                    .done = static_cast<int>(done),
                    .total = static_cast<int>(total),
                    .best = best,
                    .best_us = best_us,
                    .best_gbs = best_us > 0 ? static_cast<double>(best_bytes) / best_us * 1e-3 : 0,
                    .seconds = seconds_since(start)});
  }
  static void stop_if_asked(const Hooks& hooks) {
    if (hooks.stop.stop_requested())
      throw Error(ErrorKind::interrupted, "stopped on request; what was measured is kept");
  }
};

Settings Settings::for_device(const runtime::Model& model) {
  Settings settings;
  if (model.is_host()) {
    settings.most_configs = 12;
    settings.screening_samples = 3;
    settings.final_samples = 5;
    settings.finalists = 3;
    settings.scratch_bytes = std::int64_t{256} << 20;
  }
  return settings;
}

Tuner::Tuner(runtime::Device& device, cache::Cache& cache, const Settings& settings)
    : device_(device), cache_(cache), settings_(settings) {}

Tuner::~Tuner() = default;

cache::Key Tuner::key(const generator::Problem& problem) const {
  return {generator::key_text(problem), device_.model().key()};
}

std::optional<Decision> Tuner::known_winner(const generator::Problem& problem) const {
  return decide(cache_.measurements(key(problem)), problem.operation);
}

Tuner::Candidates Tuner::survey(const generator::Problem& problem) const {
  const generator::Limits limits = limits_of(device_.model());
  Candidates candidates{.problem = problem, .key = key(problem), .evidence = device_.evidence()};
  candidates.configs = thinned(generator::space(problem, limits), settings_.most_configs,
                               generator::safe_default(problem, limits));
  for (const generator::Variant& variant : generator::variants())
    if (variant.serves(problem))
      candidates.digests.emplace(variant.name, generator::template_digest(problem.operation, variant.name));

  std::set<std::string> known;
  for (const cache::Measurement& measurement : cache_.measurements(candidates.key)) {
    const auto digest = candidates.digests.find(measurement.config.substr(0, measurement.config.find('/')));
    if (digest != candidates.digests.end() && digest->second == measurement.template_digest)
      known.insert(measurement.config);
  }
  for (const generator::Config& config : candidates.configs)
    if (!known.contains(generator::to_text(config))) candidates.unknown.push_back(config);
  return candidates;
}

Report Tuner::tune(const generator::Problem& problem, const Hooks& hooks) {
  generator::validate(problem);
  Candidates candidates = survey(problem);
  screen(candidates, hooks);
  final_round(candidates, hooks);

  Report report{.problem = problem,
                .key = candidates.key,
                .configs = static_cast<int>(candidates.configs.size()),
                .known = static_cast<int>(candidates.configs.size() - candidates.unknown.size()),
                .compiled = candidates.compiled};
  const std::vector<cache::Measurement> all = cache_.measurements(candidates.key);
  for (const cache::Measurement& measurement : all)
    if (measurement.outcome == cache::Outcome::quarantined && is_current(measurement, problem.operation))
      ++report.quarantined[first_line(measurement.reason)];
  const auto decision = decide(all, problem.operation);
  if (!decision)
    throw Error(
        ErrorKind::verification,
        fmt::format("none of {} configs for {} gave the right answer; first reason: {}", report.configs,
                    generator::title(problem),
                    report.quarantined.empty() ? "none recorded" : report.quarantined.begin()->first));
  const cache::Measurement& won = decision->winner.measurement;
  report.winner = decision->winner.config;
  report.reason = decision->reason;
  report.median_us = won.median_us;
  report.spread = won.spread;
  report.gbs = static_cast<double>(won.bytes) / won.median_us * 1e-3;
  report.timed_rows = won.rows;
  report.ceiling_gbs = ceiling(problem, hooks);
  report.seconds = seconds_since(candidates.start);
  return report;
}

void Tuner::screen(Candidates& candidates, const Hooks& hooks) {
  if (candidates.unknown.empty()) return;
  Verifier verifier(device_, candidates.problem, settings_.seed);
  Bench bench(device_, cache_, candidates.problem, settings_.scratch_bytes, settings_.seed);
  BuildAhead ahead(device_, cache_, candidates.problem, candidates.unknown);

  for (std::size_t i = 0; i < candidates.unknown.size(); ++i) {
    Candidates::stop_if_asked(hooks);
    cache::Measurement measurement = candidates.measurement(candidates.unknown[i]);
    const auto quarantine = [&](const std::string& reason) {
      measurement.outcome = cache::Outcome::quarantined;
      measurement.reason = reason;
    };
    try {
      Built built = ahead.take(i);
      measurement.compile_key = built.compile_key();
      candidates.compiled += built.compiled;
      const Kernel kernel = built.load(device_);
      measurement.registers = kernel.resources().registers;
      measurement.local_bytes = kernel.resources().local_bytes;
      if (!kernel.fits(bench.problem())) {
        quarantine("does not fit the device");
      } else if (measurement.local_bytes > most_local_bytes) {
        quarantine(fmt::format("{} bytes of local memory a thread", measurement.local_bytes));
      } else if (const auto wrong = verifier.mismatch(kernel)) {
        quarantine("wrong answer: " + *wrong);
      } else {
        bench.time(kernel, settings_.screening_samples, measurement);
        candidates.note(measurement);
        candidates.built.emplace(measurement.config, std::move(built));
      }
    } catch (const CompileError& error) {
      ++candidates.compiled;
      quarantine(std::string("does not compile: ") + error.log());
    } catch (const DeviceError& error) {
      quarantine(std::string("fault: ") + error.what());
      cache_.add(measurement);
      device_.synchronize(device_.trial_stream());  // throws where the fault has taken the context with it
      candidates.tell(hooks, "screening", i + 1, candidates.unknown.size());
      continue;
    }
    cache_.add(measurement);
    candidates.tell(hooks, "screening", i + 1, candidates.unknown.size());
  }
}

void Tuner::final_round(Candidates& candidates, const Hooks& hooks) {
  const auto decision = decide(cache_.measurements(candidates.key), candidates.problem.operation);
  if (!decision || decision->ranking.size() < 2) return;
  // Nothing new was screened and a final was held: how its medians compare with those of the screening is
  // noise.
  if (candidates.unknown.empty() && decision->winner.measurement.stage > 0) return;
  std::vector<Candidate> ranking = decision->ranking;
  // Medians of different stages do not compare well, but which configs are worth another look does not need
  // more.
  std::sort(ranking.begin(), ranking.end(), [](const Candidate& a, const Candidate& b) {
    return a.measurement.median_us < b.measurement.median_us;
  });
  ranking.resize(std::min(ranking.size(), static_cast<std::size_t>(settings_.finalists)));
  if (std::all_of(ranking.begin(), ranking.end(), [](const Candidate& c) { return c.measurement.stage > 0; }))
    return;

  Bench bench(device_, cache_, candidates.problem, settings_.scratch_bytes, settings_.seed);
  std::vector<Kernel> kernels;
  std::vector<cache::Measurement> measurements;
  for (const Candidate& candidate : ranking) {
    const generator::Config config = generator::parse_config(candidate.config);
    const auto screened = candidates.built.find(candidate.config);
    const Built built = screened != candidates.built.end()
                            ? std::move(screened->second)
                            : build(device_, cache_, candidates.problem, config);
    if (screened == candidates.built.end()) candidates.compiled += built.compiled;
    keep(cache_, built);
    cache::Measurement& measurement = measurements.emplace_back(candidates.measurement(config));
    measurement.compile_key = built.compile_key();
    measurement.stage = 1;
    kernels.push_back(built.load(device_));
    measurement.registers = kernels.back().resources().registers;
    measurement.local_bytes = kernels.back().resources().local_bytes;
  }
  // In turns, each round from another start, so that drift of the machine meets all alike.
  constexpr int samples_a_visit = 3;
  const int rounds = std::max(1, settings_.final_samples / samples_a_visit);
  const std::size_t visits = kernels.size() * static_cast<std::size_t>(rounds);
  for (std::size_t visit = 0; visit < visits; ++visit) {
    Candidates::stop_if_asked(hooks);
    const std::size_t i = (visit + visit / kernels.size()) % kernels.size();
    bench.time(kernels[i], samples_a_visit, measurements[i]);
    candidates.tell(hooks, "final", visit + 1, visits);
  }
  for (const cache::Measurement& measurement : measurements) cache_.add(measurement);
}

double Tuner::ceiling(const generator::Problem& problem, const Hooks& hooks) {
  const generator::Operation kind = ceiling_kind(problem);
  const auto known = ceilings_.find(kind);
  if (known != ceilings_.end()) return known->second;
  return ceilings_[kind] = time_ceiling(kind, hooks);
}

double Tuner::time_ceiling(generator::Operation operation, const Hooks& hooks) {
  generator::Problem problem{.operation = operation, .columns = 4096};
  const std::int64_t bytes = device_.model().is_host() ? std::int64_t{8} << 20 : std::int64_t{1} << 30;
  problem.rows = bytes / (problem.columns * size_of(problem.dtype));

  Candidates candidates = survey(problem);
  screen(candidates, {.stop = hooks.stop});
  const auto decision = known_winner(problem);
  if (!decision)
    throw Error(ErrorKind::verification,
                fmt::format("no kernel that measures the ceiling of {} works", generator::name(operation)));
  // The winner once more, now: the ceiling of this run, not that of the day it was first measured.
  Bench bench(device_, cache_, problem, settings_.scratch_bytes, settings_.seed);
  const generator::Config config = generator::parse_config(decision->winner.config);
  const Built built = build(device_, cache_, problem, config);
  keep(cache_, built);
  const Kernel kernel = built.load(device_);
  cache::Measurement again = candidates.measurement(config);
  again.compile_key = built.compile_key();
  again.stage = 1;
  bench.time(kernel, settings_.final_samples, again);
  cache_.add(again);
  double best_us = again.median_us;
  if (operation == generator::Operation::copy)
    best_us = std::min(best_us, bench.time_driver_copy(settings_.final_samples));
  return static_cast<double>(again.bytes) / best_us * 1e-3;
}

}  // namespace ce::tuner
