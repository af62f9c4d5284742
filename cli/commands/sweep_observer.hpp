#pragma once
/// \file
/// What a sweep tells people and programs on its way.

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
  /// \param devices  the names of several, or the one
  SweepObserver(ProgressDisplay& display, ProgressLog* log, std::vector<std::string> devices);

  /// \param problem  its place in the list
  /// \param device   its place in the list, as in all that follow
  void begin(std::size_t problem, std::size_t problems, const SweptProblem& swept, std::size_t device = 0);
  void update(const tuner::Progress& progress, std::size_t device = 0);
  void finish(const SweptProblem& swept, std::size_t device = 0);
  /// The same of a ceiling, which is none of the problems.
  void begin(const SweptCeiling& swept, std::size_t problems, std::size_t device);
  void finish(const SweptCeiling& swept, std::size_t device);
  /// \param then    what becomes of what it was at
  /// \param counts  whether that is a problem that is done with
  void died(const Failure& failure, std::string_view then, bool counts, std::size_t device);
  void end(const SweepResult& result);

 private:
  void write(std::string_view event, std::size_t device, const Json& fields);

  ProgressDisplay& display_;
  ProgressLog* log_;
  std::vector<std::string> devices_;
  std::mutex mutex_;
  std::vector<double> last_written_;  // updates of each device, in seconds
};

}  // namespace ce::cli
