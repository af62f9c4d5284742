#include "cli/analysis/populations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "ce/error.hpp"
#include "generator/config.hpp"
#include "generator/variant.hpp"
#include "runtime/model_key.hpp"
#include "tuner/decide.hpp"
#include "tuner/doubt.hpp"
#include "tuner/key.hpp"
#include "tuner/maker.hpp"
#include "tuner/statistics.hpp"

namespace ce::tuner {
namespace {

using cache::Measurement;

/// The first of these names that the environment has, else "-".
std::string environment_in(const cache::Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto found = environment.find(name); found != environment.end()) return found->second;
  return "-";
}

std::string environment_in(const Measurement& measurement, std::initializer_list<const char*> names) {
  return environment_in(measurement.environment, names);
}

/// The noise floor on a host device, whose times vary with the processor's other work.
constexpr double host_error = 0.2;

/// The relative standard error.
double error_of(const Measurement& measurement) {
  const double error = error_of_median(measurement.spread, measurement.samples_us.size());
  return measurement.key.device.starts_with("host:") ? std::max(error, host_error) : error;
}

bool counts(const Measurement& measurement) {
  return measurement.outcome == cache::Outcome::measured && measurement.stage != cache::stage_of_screenings &&
         measurement.median_us > 0 && doubt_of(measurement).empty();
}

bool has_room_for(const Population& population, const Measurement& measurement, const Software& software) {
  const auto& [variant, digest] = *software.templates.begin();
  const auto known = population.software.templates.find(variant);
  return population.rows == measurement.rows && population.software.driver == software.driver &&
         population.software.toolkit == software.toolkit && population.software.library == software.library &&
         (known == population.software.templates.end() || known->second == digest);
}

/// The config that was served at the last run; the population's own winner if that config has no run in it.
/// \param all  the measurements of the key, oldest first
std::string winner_of(const Population& population, std::span<const Measurement* const> all) {
  const auto end = std::find_if(all.begin(), all.end(),
                                [&](const Measurement* m) { return m->created_at > population.last_at(); });
  const Measurement* served = winner_among({all.begin(), end}, population.software.templates);
  if (served != nullptr && !population.runs_of(served->config).empty()) return served->config;
  const Measurement* fastest = winner_among(population.runs, population.software.templates);
  return fastest != nullptr ? fastest->config : population.runs.front()->config;
}

/// In microseconds; 0 if missing, or invalid in an edited database.
double time_in(const Measurement& measurement, const char* name) {
  const std::string text = environment_in(measurement, {name});
  double us = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), us);
  return error == std::errc() && us > 0 && std::isfinite(us) ? us : 0;
}

struct ParsedKey {
  cache::Key key;
  std::optional<runtime::Model> model;
  std::optional<generator::Problem> problem;
  std::map<std::pair<std::string, std::int64_t>, bool> fills;  ///< by config and rows

  [[nodiscard]] bool is_filled(const std::string& text, std::int64_t rows) const {
    constexpr int blocks_a_multiprocessor = 4;
    if (!model || model->is_host() || !problem) return true;
    generator::Problem timed = *problem;
    timed.rows = rows;
    try {
      const generator::Config config = generator::parse_config(text);
      return generator::variant(config.variant).blocks(config, timed) >=
             std::int64_t{blocks_a_multiprocessor} * model->multiprocessors;
    } catch (const InvalidArgument&) {
      return true;
    }
  }
};

/// Measurements that count as one run.
struct OneRun {
  std::vector<const Measurement*> measurements;
  double process_us = 0;
};

Run to_run(const OneRun& run, const Measurement& like) {
  const auto typical = [&](const auto& figure) {
    std::vector<float> figures;
    for (const Measurement* measurement : run.measurements)
      figures.push_back(static_cast<float>(figure(*measurement)));
    return std::ranges::min(figures) > 0 ? static_cast<double>(median(figures)) : 0.;
  };
  const auto time_of = [&](const char* name) {
    return typical([&](const Measurement& measurement) {
      const bool comparable =
          environment_in(measurement, {"reference"}) == environment_in(like, {"reference"});
      return comparable ? time_in(measurement, name) : 0;
    });
  };
  return {.median_us = typical([](const Measurement& measurement) { return measurement.median_us; }),
          .error = typical([](const Measurement& measurement) { return error_of(measurement); }),
          .reference_us = time_of("reference_us"),
          .launch_us = time_of("launch_us"),
          .process_us = run.process_us};
}

}  // namespace

Software software_of(const cache::Environment& environment) {
  return {.driver = environment_in(environment, {"driver", "kernel"}),
          .toolkit = environment_in(environment, {"nvrtc", "compiler"}),
          .library = environment_in(environment, {"ce"}),
          .templates = {}};
}

Software software_of(const Measurement& measurement) {
  Software software = software_of(measurement.environment);
  software.templates.emplace(templates_of(measurement), measurement.template_digest);
  return software;
}

std::string templates_text(std::string_view variant, std::string_view digest) {
  constexpr std::size_t digits = 8;
  return variant.empty() ? std::string(digest) : fmt::format("{} {}", variant, digest.substr(0, digits));
}

std::vector<const Measurement*> Population::runs_of(const std::string& config) const {
  std::vector<const Measurement*> found;
  for (const Measurement* run : runs)
    if (run->config == config) found.push_back(run);
  return found;
}

std::vector<Population> populations_of(std::span<const Measurement> measurements,
                                       const std::function<bool(const Measurement&)>& chosen) {
  std::vector<const Measurement*> all;
  all.reserve(measurements.size());
  for (const Measurement& measurement : measurements) all.push_back(&measurement);
  std::vector<Population> populations;
  std::unordered_map<const cache::Environment::Map*, Software> known;
  for (const Measurement& measurement : measurements) {
    if (!counts(measurement) || (chosen && !chosen(measurement)) || has_lost_winner(measurement, all))
      continue;
    const auto [environments, is_new] = known.try_emplace(&measurement.environment.map());
    if (is_new) environments->second = software_of(measurement.environment);
    Software software = environments->second;
    software.templates.emplace(templates_of(measurement), measurement.template_digest);
    // Sorted newest first, so that a new variant joins the newest population.
    auto own = std::find_if(populations.rbegin(), populations.rend(), [&](const Population& population) {
      return has_room_for(population, measurement, software);
    });
    if (own == populations.rend()) {
      populations.push_back({.software = std::move(software), .rows = measurement.rows});
      own = populations.rbegin();
    } else {
      own->software.templates.merge(software.templates);
    }
    own->runs.push_back(&measurement);
    std::rotate(populations.rbegin(), own, own + 1);
  }
  for (Population& population : populations) population.winner = winner_of(population, all);
  return populations;
}

bool fills_device(const Measurement& measurement) {
  // Cached, since it is called for all runs of one key in sequence.
  thread_local ParsedKey last;
  if (!(last.key == measurement.key))
    last = {
        measurement.key, runtime::parse_model_key(measurement.key.device), problem_of(measurement.key), {}};
  const auto [known, is_new] = last.fills.try_emplace({measurement.config, measurement.rows});
  if (is_new) known->second = last.is_filled(measurement.config, measurement.rows);
  return known->second;
}

std::vector<Run> to_runs(std::span<const Measurement* const> measurements) {
  return measurements.empty() ? std::vector<Run>() : to_runs(measurements, *measurements.front());
}

std::vector<Run> to_runs(std::span<const Measurement* const> measurements, const Measurement& like) {
  std::vector<OneRun> runs;
  std::map<std::string, std::size_t> of_process;
  for (const Measurement* measurement : measurements) {
    if (fills_device(*measurement)) {
      runs.push_back({.measurements = {measurement}});
      continue;
    }
    const auto [known, is_new] = of_process.emplace(environment_in(*measurement, {"process"}), runs.size());
    if (is_new) runs.push_back({.measurements = {}, .process_us = usual_process_us});
    runs[known->second].measurements.push_back(measurement);
  }
  std::vector<Run> result;
  result.reserve(runs.size());
  for (const OneRun& run : runs) result.push_back(to_run(run, like));
  return result;
}

void NoisePool::add(const NoisePool& other) {
  repeats_.insert(repeats_.end(), other.repeats_.begin(), other.repeats_.end());
}

void NoisePool::add(std::span<const Population> populations) {
  for (const Population& population : populations) {
    std::map<std::array<std::string, 2>, std::vector<const Measurement*>> groups;
    for (const Measurement* run : population.runs)
      if (fills_device(*run)) groups[{run->config, environment_in(*run, {"uuid"})}].push_back(run);
    for (const auto& [identity, runs] : groups)
      if (runs.size() > 1) repeats_.push_back(to_runs(runs));
  }
}

}  // namespace ce::tuner
