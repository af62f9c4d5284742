#pragma once
/// \file
/// Prints the results of `bench`.

#include <optional>
#include <string>
#include <vector>

#include "cache/measurement.hpp"
#include "cli/analysis/retime.hpp"
#include "cli/commands/tuning_run.hpp"
#include "cli/failure.hpp"
#include "cli/json.hpp"
#include "cli/report/line_plot.hpp"
#include "generator/problem.hpp"

namespace ce::cli {

/// One problem of the suite: its timing, or why there is none.
struct BenchedProblem {
  generator::Problem problem;
  cache::Key key;
  bool tuned = false;  ///< tuned by this run; else the winner was known
  std::optional<tuner::Retiming> timing;
  double bound_us = 0;  ///< set for few rows; else 0
  std::optional<Failure> failure;
};

struct BenchResult {
  std::vector<BenchedProblem> problems;  ///< problems that were started
  std::size_t asked = 0;
  std::string suite;
  std::string command;
  int samples = 0;
  double launch_floor_us = 0;  ///< set for few rows; else 0
  TuningRun run;
};

/// "softmax bf16 8192 x 4096: block/... 43.1 us 3110 GB/s, 74.2% of the ceiling".
[[nodiscard]] std::string finished_line(const BenchedProblem& benched);

/// A table for each operation and dtype, errors, and one line of totals.
[[nodiscard]] std::string text_of(const BenchResult& result);
[[nodiscard]] Json json_of(const BenchResult& result);
/// GB/s over columns: a panel for each operation, a line for each dtype, and the ceiling.
[[nodiscard]] LinePlot plot_of(const BenchResult& result);

}  // namespace ce::cli
