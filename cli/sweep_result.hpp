#pragma once
/// \file
/// What a sweep tells at its end.

#include <optional>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "cli/failure.hpp"
#include "cli/json.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"
#include "tuner/tuner.hpp"

namespace ce::cli {

/// One problem of a sweep: a report, or why there is none.
struct SweptProblem {
  generator::Problem problem;
  cache::Key key;
  std::optional<tuner::Report> report;
  std::optional<Failure> failure;
};

struct SweepResult {
  std::vector<SweptProblem> problems;  ///< those that were begun
  std::size_t asked = 0;               ///< problems of the sweep
  std::string device;                  ///< "cuda:0"
  runtime::Model model;
  std::string date;            ///< of its start: UTC, ISO 8601
  runtime::Evidence evidence;  ///< of its start: driver, clocks, ...
  cache::Status database;
  double seconds = 0;
  std::optional<Failure> failure;  ///< the first one; decides the exit status
};

/// "softmax bf16 8192 x 4096: block/... 43.1 us 3110 GB/s": the line that stays when a problem is done.
[[nodiscard]] std::string finished_line(const SweptProblem& swept);

/// The table, what was rejected and why, and one line of sums.
[[nodiscard]] std::string text_of(const SweepResult& result);
[[nodiscard]] Json json_of(const SweepResult& result);

}  // namespace ce::cli
