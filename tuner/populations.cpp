#include "tuner/populations.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <utility>

#include "ce/base/error.hpp"
#include "generator/config.hpp"
#include "generator/variant.hpp"
#include "runtime/model_key.hpp"
#include "tuner/decide.hpp"
#include "tuner/nearest.hpp"
#include "tuner/statistics.hpp"

namespace ce::tuner {
namespace {

using cache::Measurement;

/// The first of these names that there is, else "-".
std::string evidence_in(const Measurement& measurement, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto found = measurement.evidence.find(name); found != measurement.evidence.end())
      return found->second;
  return "-";
}

/// On a host device, whose times scatter with whatever else its processor does, no run is known better than to this.
constexpr double host_error = 0.2;

/// Standard error, relative.
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

/// What was served when the last run was made; of the population itself where that was not among its runs.
std::string winner_of(const Population& population, std::span<const Measurement> measurements) {
  const auto end = std::find_if(measurements.begin(), measurements.end(),
                                [&](const Measurement& m) { return m.created_at > population.last_at(); });
  const auto served = decide({measurements.begin(), end}, population.software.templates);
  if (served && !population.runs_of(served->winner.config).empty()) return served->winner.config;
  std::vector<Measurement> own;
  for (const Measurement* run : population.runs) own.push_back(*run);
  const auto fastest = decide(own, population.software.templates);
  return fastest ? fastest->winner.config : population.runs.front()->config;
}

/// In microseconds; 0 where there is none, or what an edited database has in its place.
double time_in(const Measurement& measurement, const char* name) {
  const std::string text = evidence_in(measurement, {name});
  double us = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), us);
  return error == std::errc() && us > 0 && std::isfinite(us) ? us : 0;
}

/// Whether the kernel has blocks enough that what one of them meets does not decide its time; so is taken what an edited
/// database has in place of a key or a config.
bool fills_device(const Measurement& measurement) {
  constexpr int blocks_a_multiprocessor = 4;
  const auto model = runtime::parse_model_key(measurement.key.device);
  std::optional<generator::Problem> problem = problem_of(measurement.key);
  if (!model || !problem) return true;
  problem->rows = measurement.rows;
  try {
    const generator::Config config = generator::parse_config(measurement.config);
    return generator::variant(config.variant).blocks(config, *problem) >=
           std::int64_t{blocks_a_multiprocessor} * model->multiprocessors;
  } catch (const InvalidArgument&) {
    return true;
  }
}

}  // namespace

Software software_of(const Measurement& measurement) {
  return {.driver = evidence_in(measurement, {"driver", "kernel"}),
          .toolkit = evidence_in(measurement, {"nvrtc", "compiler"}),
          .library = evidence_in(measurement, {"ce"}),
          .templates = {{variant_of(measurement.config), measurement.template_digest}}};
}

std::vector<const Measurement*> Population::runs_of(const std::string& config) const {
  std::vector<const Measurement*> found;
  for (const Measurement* run : runs)
    if (run->config == config) found.push_back(run);
  return found;
}

std::vector<Population> populations_of(std::span<const Measurement> measurements,
                                       const std::function<bool(const Measurement&)>& chosen) {
  std::vector<Population> populations;
  for (const Measurement& measurement : measurements) {
    if (!counts(measurement) || (chosen && !chosen(measurement))) continue;
    Software software = software_of(measurement);
    // The newest first, so that a variant that is new joins that.
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
  for (Population& population : populations) population.winner = winner_of(population, measurements);
  return populations;
}

std::vector<Run> to_runs(std::span<const Measurement* const> measurements) {
  std::vector<Run> runs;
  for (const Measurement* measurement : measurements) {
    const bool comparable =
        evidence_in(*measurement, {"reference"}) == evidence_in(*measurements.front(), {"reference"});
    runs.push_back({.median_us = measurement->median_us,
                    .error = error_of(*measurement),
                    .reference_us = comparable ? time_in(*measurement, "reference_us") : 0,
                    .launch_us = comparable ? time_in(*measurement, "launch_us") : 0,
                    .process = evidence_in(*measurement, {"process"}),
                    .process_us = fills_device(*measurement) ? 0 : usual_process_us});
  }
  return runs;
}

void NoisePool::add(std::span<const Population> populations) {
  for (const Population& population : populations) {
    std::map<std::array<std::string, 3>, std::vector<const Measurement*>> groups;
    for (const Measurement* run : population.runs)
      groups[{run->config, evidence_in(*run, {"uuid"}),
              fills_device(*run) ? std::string() : evidence_in(*run, {"process"})}]
          .push_back(run);
    for (const auto& [identity, runs] : groups)
      if (runs.size() > 1) repeats_.push_back(to_runs(runs));
  }
}

}  // namespace ce::tuner
