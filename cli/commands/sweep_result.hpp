#pragma once
/// \file
/// What a sweep tells at its end.

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

/// One problem of a sweep: a report, or why there is none. With neither, the budget was used up before it.
struct SweptProblem {
  generator::Problem problem;
  cache::Key key;
  std::optional<tuner::Report> report{};
  std::optional<Failure> failure{};
  std::vector<tuner::Candidate> best{};  ///< as many as were asked for, the winner first
  bool is_tuned_elsewhere = false;       ///< another process was tuning it when it was last looked at
  std::string device{};                  ///< the last that was at it, of a sweep over several

  [[nodiscard]] bool is_cut_short() const { return report && report->is_cut_short; }
};

/// The ceiling of one kind, of a sweep over several devices: searched once for all of them, and timed on each.
struct SweptCeiling {
  generator::Operation kind;         ///< see tuner::ceiling_kind()
  bool is_searched = false;          ///< it can be timed
  double gbs = 0;                    ///< as of one device; 0 before it was timed
  std::optional<Failure> failure{};  ///< of the search, or of the time
  bool is_tuned_elsewhere = false;   ///< as of a problem
};

/// One of several devices.
struct SweptDevice {
  std::string device;
  runtime::Environment environment;  ///< at the start
  std::size_t problems = 0;          ///< that were finished on it
  std::optional<Failure> failure{};  ///< why it was no longer used
};

struct SweepResult {
  std::vector<SweptProblem> problems;  ///< those that were begun, or that the budget left out
  std::size_t asked = 0;               ///< problems of the sweep, or of its shard
  std::size_t listed = 0;              ///< problems of all shards
  std::optional<Shard> shard;
  TuningRun run;
  std::vector<SweptDevice> devices{};  ///< empty where there is but one
};

/// "softmax bf16 8192 x 4096: block/... 43.1 us 3110 GB/s": the line that stays when a problem is done.
[[nodiscard]] std::string finished_line(const SweptProblem& swept);
/// "ceiling of copy: searched": the same of a ceiling.
[[nodiscard]] std::string finished_line(const SweptCeiling& swept);
/// "ceiling of copy"
[[nodiscard]] std::string title_of(const SweptCeiling& swept);

/// The table, what was rejected and why, and one line of sums.
[[nodiscard]] std::string text_of(const SweepResult& result);
[[nodiscard]] Json json_of(const SweepResult& result);
/// Numbers of problems and configs, and seconds.
[[nodiscard]] Json summary_of(const SweepResult& result);

}  // namespace ce::cli
