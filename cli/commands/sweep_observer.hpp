#pragma once
/// \file
/// Reports a sweep's progress to people and programs.

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands/sweep_result.hpp"
#include "cli/progress.hpp"
#include "cli/progress_log.hpp"

namespace ce::cli {

/// Thread-safe.
class SweepObserver {
 public:
  /// \param log      null for none
  /// \param devices  names of several devices, or the one
  SweepObserver(ProgressDisplay& display, ProgressLog* log, std::vector<std::string> devices);

  /// \param problem  its index in the list
  /// \param device   its index in the list, as for all members below
  void begin(std::size_t problem, std::size_t problems, const SweptProblem& swept, std::size_t device = 0);
  void update(const tuner::Progress& progress, std::size_t device = 0);
  void finish(const SweptProblem& swept, std::size_t device = 0);
  /// For a ceiling, which is not one of the problems.
  void begin(const SweptCeiling& swept, std::size_t problems, std::size_t device);
  void finish(const SweptCeiling& swept, std::size_t device);
  /// \param then    what happens to its job
  /// \param counts  whether a problem is finished by it
  void died(const Failure& failure, std::string_view then, bool counts, std::size_t device);
  void end(const SweepResult& result);

 private:
  void write(std::string_view event, std::size_t device, const Json& fields);

  ProgressDisplay& display_;
  ProgressLog* log_;
  std::vector<std::string> devices_;
  std::mutex mutex_;
  std::vector<double> last_written_;  // seconds of the last update of each device
};

}  // namespace ce::cli
