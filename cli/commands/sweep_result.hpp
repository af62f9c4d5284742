#pragma once
/// \file
/// Prints the results of a sweep.

#include <optional>
#include <string>
#include <vector>

#include "cache/measurement.hpp"
#include "cli/commands/tuning_run.hpp"
#include "cli/failure.hpp"
#include "cli/json.hpp"
#include "cli/shard.hpp"
#include "generator/problem.hpp"
#include "tuner/tuner.hpp"

namespace ce::cli {

/// One problem of a sweep: a report, or why there is none. With neither, the budget ended before it.
struct SweptProblem {
  generator::Problem problem;
  cache::Key key;
  std::optional<tuner::Report> report{};
  std::optional<Failure> failure{};
  std::vector<tuner::Candidate> best{};  ///< as many as were asked for, the winner first
  bool is_tuned_elsewhere = false;       ///< another process was tuning it at the last attempt
  std::string device{};                  ///< the last device that tuned it, in a sweep over several

  [[nodiscard]] bool is_cut_short() const { return report && report->is_cut_short; }
};

/// The ceiling of one kind, in a sweep over several devices: searched once, and timed on each device.
struct SweptCeiling {
  generator::Operation kind;         ///< see tuner::ceiling_kind()
  bool is_searched = false;          ///< its search has ended, so it can be timed
  double gbs = 0;                    ///< on one device; 0 before it is timed
  std::optional<Failure> failure{};  ///< failure of the search or of the timing
  bool is_tuned_elsewhere = false;   ///< another process was searching it at the last attempt
};

/// One of several devices.
struct SweptDevice {
  std::string device;
  runtime::Environment environment;  ///< at the start
  std::size_t problems = 0;          ///< number of problems finished on it
  std::optional<Failure> failure{};  ///< why it is no longer used
};

struct SweepResult {
  std::vector<SweptProblem> problems;  ///< problems that were started, or that the budget left out
  std::size_t asked = 0;               ///< number of problems in the sweep, or in its shard
  std::size_t listed = 0;              ///< number of problems in all shards
  std::optional<Shard> shard;
  TuningRun run;
  std::vector<SweptDevice> devices{};  ///< empty for a single device
};

/// The line of a finished problem: "softmax bf16 8192 x 4096: block/... 43.1 us 3110 GB/s".
[[nodiscard]] std::string finished_line(const SweptProblem& swept);
/// The line of a ceiling: "ceiling of copy: searched".
[[nodiscard]] std::string finished_line(const SweptCeiling& swept);
/// "ceiling of copy"
[[nodiscard]] std::string title_of(const SweptCeiling& swept);

/// The table, rejections with reasons, and one line of totals.
[[nodiscard]] std::string text_of(const SweepResult& result);
[[nodiscard]] Json json_of(const SweepResult& result);
/// Numbers of problems and configs, and seconds.
[[nodiscard]] Json summary_of(const SweepResult& result);

}  // namespace ce::cli
