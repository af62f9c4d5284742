#include "tuner/remote.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <exception>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/digest.hpp"
#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/program.hpp"
#include "base/time.hpp"
#include "cache/export.hpp"
#include "ce/error.hpp"
#include "generator/source.hpp"
#include "generator/variant.hpp"
#include "tuner/decide.hpp"
#include "tuner/quarantine_reason.hpp"

namespace ce::tuner {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t most_measurements = 64;
/// The exit status with which a hook says that there is no document.
constexpr int nothing_there = 1;

/// No hook is called for this long after one hung, so that not every search waits for it.
constexpr std::chrono::seconds rest_after_hanging{60};
std::atomic<Clock::rep> rests_until = 0;

void say_once(const char* variable, std::string_view problem) {
  log_once(LogLevel::warning, fmt::format("{}: {}; tuning continues without it", variable, problem));
}

/// The output of the command in a variable. \returns nothing if the variable is not set, the hook is paused, or it
/// fails
std::optional<ProgramEnd> run_hook(const char* variable, const std::string& name, std::string_view input) {
  const auto command = environment_variable(variable);
  if (!command || Clock::now().time_since_epoch().count() < rests_until) return std::nullopt;
  const int seconds = number_of_environment("CE_REMOTE_SECONDS", usual_remote_seconds, 1, 600);
  ProgramEnd end = run_program({"/bin/sh", "-c", *command + " \"$@\"", "ce", name}, input,
                               {.time = std::chrono::seconds(seconds), .most_output = most_remote_bytes});
  if (!end.failure.empty()) {
    rests_until = (Clock::now() + rest_after_hanging).time_since_epoch().count();
    say_once(variable, fmt::format("{}; the next request is in {} s or later", end.failure,
                                   rest_after_hanging.count()));
    return std::nullopt;
  }
  return end;
}

std::string problem_of_end(const ProgramEnd& end) {
  const std::string line = first_line(end.errors);
  return fmt::format("exit status {}{}", end.status, line.empty() ? "" : ": " + line);
}

/// A time in the future would win for ever.
std::string latest_time() {
  constexpr std::time_t a_day = 24 * 60 * 60;
  return utc_text({.tv_sec = std::time(nullptr) + a_day, .tv_nsec = 0});
}

/// \throws InvalidArgument if it is not a final of the key
std::vector<cache::Measurement> final_in(const std::string& text, const cache::Key& key) {
  std::istringstream lines(text);
  std::vector<cache::Measurement> list = cache::read_export(lines, "the document");
  const auto expect = [](bool holds, std::string_view what, std::string_view value,
                         std::string_view expected) {
    if (!holds) throw InvalidArgument(what, value, expected);
  };
  expect(list.size() <= most_measurements, "the document", fmt::format("{} measurements", list.size()),
         fmt::format("at most {}", most_measurements));
  const std::string latest = latest_time();
  for (const cache::Measurement& measurement : list) {
    expect(measurement.key == key, "its key", measurement.key.id(), key.id());
    expect(measurement.outcome == cache::Outcome::measured && measurement.stage == cache::stage_of_finals,
           "a measurement", fmt::format("of stage {}", measurement.stage), "one of a final");
    expect(measurement.created_at < latest, "created_at", measurement.created_at, "a time in the past");
  }
  return list;
}

}  // namespace

std::string remote_name(const cache::Key& key, const generator::Problem& problem) {
  constexpr std::size_t digits = 12;
  std::string templates;
  for (const generator::Variant& variant : generator::variants())
    if (variant.serves(problem))
      templates +=
          fmt::format("{} {}\n", variant.name, generator::template_digest(problem.operation, variant.name));
  return fmt::format("{}-{}", key.id(), digest({templates}).substr(0, digits));
}

bool ask_remote(cache::Cache& cache, const cache::Key& key, const generator::Problem& problem) {
  constexpr const char* variable = "CE_REMOTE_GET";
  try {
    if (!environment_variable(variable)) return false;
    if (environment_variable("CE_TRUST")) {
      say_once(variable, "it cannot be used, because CE_TRUST is set and its documents have no signature");
      return false;
    }
    const auto end = run_hook(variable, remote_name(key, problem), "");
    if (!end || end->status == nothing_there) return false;
    if (!end->succeeded()) {
      say_once(variable, problem_of_end(*end));
      return false;
    }
    const std::vector<cache::Measurement> list = final_in(end->output, key);
    if (list.empty()) return false;
    cache.add(list);
    return true;
  } catch (const std::exception& error) {
    try {
      say_once(variable, error.what());
    } catch (...) {  // the log is not worth a failure either
    }
    return false;
  }
}

void tell_remote(const cache::Cache& cache, const cache::Key& key, const generator::Problem& problem) {
  constexpr const char* variable = "CE_REMOTE_PUT";
  try {
    if (!environment_variable(variable)) return;
    const std::vector<cache::Measurement> all = cache.measurements(key);
    const auto decision = decide(all, problem.operation);
    if (!is_finished(decision)) return;
    const cache::Measurement& winner = decision->winner.measurement;
    std::vector<cache::Measurement> final{winner};
    for (const Candidate& candidate : decision->ranking) {
      const cache::Measurement& other = candidate.measurement;
      const bool is_beside = other.stage == winner.stage && other.rows == winner.rows &&
                             other.created_at == winner.created_at && other.config != winner.config;
      if (is_beside && final.size() < most_measurements) final.push_back(other);
    }
    std::ostringstream lines;
    cache::write_export(lines, final);
    const auto end = run_hook(variable, remote_name(key, problem), lines.view());
    if (end && !end->succeeded()) say_once(variable, problem_of_end(*end));
  } catch (const std::exception& error) {
    try {
      say_once(variable, error.what());
    } catch (...) {  // the log is not worth a failure either
    }
  }
}

}  // namespace ce::tuner
