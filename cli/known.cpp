#include "cli/known.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/printable.hpp"
#include "cache/bundle.hpp"
#include "ce/error.hpp"
#include "tuner/quarantine_reason.hpp"
#include "tuner/statistics.hpp"

namespace ce::cli {

Known::Known(const cache::Cache& cache, const cache::Key& wanted)
    : key(wanted), problem(problem_of(wanted)), measurements(cache.measurements(wanted)) {
  decision = tuner::decide(measurements);
  if (problem)
    if (const auto pin = cache.pin(wanted)) tuner::apply_pin(*pin, *problem, measurements, decision);
  if (tuner::subject_of_race(wanted)) maker = tuner::maker_of_race(measurements);
  std::set<std::string> ranked;
  if (decision)
    for (const tuner::Candidate& candidate : decision->ranking) ranked.insert(candidate.text());
  std::map<std::string, const cache::Measurement*> latest;
  for (const cache::Measurement& measurement : measurements) {
    if (!is_current(measurement))
      ++history;
    else if (measurement.outcome == cache::Outcome::quarantined && !ranked.contains(measurement.config))
      latest[measurement.config] = &measurement;
  }
  for (const auto& [config, measurement] : latest) quarantined.push_back(measurement);
}

bool Known::is_current(const cache::Measurement& measurement) const {
  return problem ? tuner::is_current(measurement, problem->operation)
                 : !maker.empty() && measurement.template_digest == maker;
}

const generator::Problem& Known::problem_or_throw() const {
  if (tuner::subject_of_race(key))
    throw InvalidArgument("KEY", fmt::format("{}, a race ({})", key.id(), title()),
                          "a key of kernels; only the call that needs a race runs it, see ce-tune linear");
  if (!problem) static_cast<void>(generator::parse_key_text(key.problem));
  return problem.value();
}

std::map<std::string, int> Known::rejections() const {
  std::map<std::string, int> reasons;
  for (const cache::Measurement* measurement : quarantined) ++reasons[tuner::first_line(measurement->reason)];
  return reasons;
}

std::string Known::title() const { return title_of(key); }

std::string title_of(const cache::Key& key) {
  const auto problem = problem_of(key);
  return problem ? generator::title(*problem)
                 : printable(tuner::subject_of_race(key).value_or(std::string_view(key.problem)));
}

std::string_view stage_of(const cache::Measurement& measurement) noexcept {
  switch (measurement.stage) {
    case cache::stage_of_checks: return "check";
    case cache::stage_of_screenings: return "early";
    default: return "final";
  }
}

std::string timed_text(const cache::Measurement& measurement) {
  if (measurement.created_at == cache::undated)
    return "on another machine; a bundle does not contain the time";
  if (!has_time(measurement)) return "never";
  std::string text = printable(measurement.created_at.substr(0, 16)) + " UTC";
  if (const std::size_t at = text.find('T'); at != std::string::npos) text[at] = ' ';
  for (const char* name : {"uuid", "host"})
    if (const auto found = measurement.environment.find(name); found != measurement.environment.end())
      return text + " on " + printable(found->second);
  return text;
}

bool has_time(const cache::Measurement& measurement) noexcept {
  constexpr double shortest_us = 1e-3;
  return measurement.median_us >= shortest_us &&
         measurement.median_us < std::numeric_limits<double>::infinity();
}

double throughput_of(const cache::Measurement& measurement) noexcept {
  return has_time(measurement) ? tuner::gbs_of(measurement.bytes, measurement.median_us) : 0;
}

std::string device_name_of(const cache::Key& key) { return key.device.substr(0, key.device.find('|')); }

}  // namespace ce::cli
