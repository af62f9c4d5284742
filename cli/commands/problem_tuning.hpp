#pragma once
/// \file
/// How a sweep tunes one of its problems, in whichever process it does so.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cache/cache.hpp"
#include "cli/commands/isolated_tuning.hpp"
#include "cli/commands/sweep_result.hpp"
#include "cli/commands/tuning_run.hpp"
#include "runtime/device.hpp"
#include "tuner/tuner.hpp"

namespace ce::cli {

/// How far to search, for every problem.
struct SearchOptions {
  TuningOptions tuning{};
  bool retune = false;
  std::optional<std::chrono::milliseconds> launch_limit{};  ///< to tune in another process
  std::chrono::steady_clock::time_point end =
      std::chrono::steady_clock::time_point::max();  ///< of the sweep's time
};

/// How many processes share the problems of a sweep.
enum class Processes : std::uint8_t {
  one,  ///< each report has its ceiling at once
  several,  ///< ceilings are searched and timed on their own; what was measured is in the file before others may look
};

/// Tunes problems on one device. Not thread-safe.
class ProblemTuning {
 public:
  /// Both references must outlive this object.
  /// \throws InvalidArgument naming an option, Error(compile) where the device has no compiler
  ProblemTuning(runtime::Device& device, cache::Cache& cache, const SearchOptions& options,
                Processes processes = Processes::one);

  [[nodiscard]] cache::Key key(const generator::Problem& problem) const { return tuner_.key(problem); }

  /// Whether the time of the sweep is over.
  [[nodiscard]] bool is_over() const { return !share(); }

  /// Tunes one problem, as long as there is time, and reports what is known where there is none. An error goes into the
  /// result; a problem of which nothing was measured in time has none, nor a report.
  /// \param waits  for a process that is tuning it; else it is left for later
  /// \returns whether to go on with the next one
  [[nodiscard]] bool tune(SweptProblem& swept, bool waits, const tuner::Hooks& hooks);

  /// Of several processes: searches a ceiling, as long as there is time. An error goes into the result.
  /// \param waits  as of tune()
  /// \returns as tune()
  [[nodiscard]] bool search_ceiling(SweptCeiling& swept, bool waits, const tuner::Hooks& hooks);
  /// Times a ceiling that was searched, here or by another process: none where the time is over. An error goes into the
  /// result.
  /// \returns as tune()
  [[nodiscard]] bool time_ceiling(SweptCeiling& swept);

 private:
  /// Seconds that a problem may take now, 0 for no bound; nothing where the time is over.
  [[nodiscard]] std::optional<double> share() const;
  /// Nothing where another process has it; with `waits`, until the time is over.
  [[nodiscard]] std::optional<cache::TuningLock> tuning_lock(const cache::Key& key, bool waits,
                                                             const tuner::Hooks& hooks) const;
  void search(SweptProblem& swept, const tuner::Hooks& hooks);
  void report(SweptProblem& swept, tuner::Report report, const tuner::Hooks& hooks);
  void report_known(SweptProblem& swept, const tuner::Hooks& hooks);
  void write_for_others() const;

  cache::Cache& cache_;
  tuner::Tuner tuner_;
  std::optional<IsolatedTuning> isolated_;
  Processes processes_;
  double most_s_;
  std::chrono::steady_clock::time_point end_;
};

/// The best `most` configs of a problem that was tuned, as far as the database knows.
[[nodiscard]] std::vector<tuner::Candidate> best_of(const cache::Cache& cache, const SweptProblem& swept,
                                                    std::size_t most);

}  // namespace ce::cli
