#pragma once
/// \file
/// Tunes one problem of a sweep, in whichever process.

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

/// The extent of the search, for every problem.
struct SearchOptions {
  TuningOptions tuning{};
  bool retune = false;
  std::optional<std::chrono::milliseconds> launch_limit{};  ///< if set, tune in another process
  std::chrono::steady_clock::time_point end =
      std::chrono::steady_clock::time_point::max();  ///< end of the sweep's time
};

/// The number of processes that share the problems of a sweep.
enum class Processes : std::uint8_t {
  one,      ///< each report gets its ceiling at once
  several,  ///< ceilings are separate jobs; measurements are written to the file before others may read it
};

/// Tunes problems on one device. Not thread-safe.
class ProblemTuning {
 public:
  /// Both references must outlive this object.
  /// \throws InvalidArgument naming an option, Error(compile) if the device has no compiler
  ProblemTuning(runtime::Device& device, cache::Cache& cache, const SearchOptions& options,
                Processes processes = Processes::one);

  [[nodiscard]] cache::Key key(const generator::Problem& problem) const { return tuner_.key(problem); }

  /// Whether the sweep's time is over.
  [[nodiscard]] bool is_over() const { return !share(); }

  /// Tunes one problem if there is time, and reports its known winner if there is none. An error is stored in the
  /// result; a problem without measurements in time has neither an error nor a report.
  /// \param waits  wait for a process that tunes the problem; otherwise leave it for later
  /// \returns whether to go on with the next problem
  [[nodiscard]] bool tune(SweptProblem& swept, bool waits, const tuner::Hooks& hooks);

  /// For several processes: searches a ceiling if there is time. An error is stored in the result.
  /// \param waits  as for tune()
  /// \returns as tune()
  [[nodiscard]] bool search_ceiling(SweptCeiling& swept, bool waits, const tuner::Hooks& hooks);
  /// Times a ceiling whose search has ended, here or in another process; does nothing if the time is over. An error is
  /// stored in the result.
  /// \returns as tune()
  [[nodiscard]] bool time_ceiling(SweptCeiling& swept);

 private:
  /// Seconds for the next problem, 0 for no bound; nothing if the time is over.
  [[nodiscard]] std::optional<double> share() const;
  /// The tuning lock; nothing if another process holds it; with `waits`, nothing once the time is over.
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

/// The best `most` configs of a tuned problem in the database.
[[nodiscard]] std::vector<tuner::Candidate> best_of(const cache::Cache& cache, const SweptProblem& swept,
                                                    std::size_t most);

}  // namespace ce::cli
