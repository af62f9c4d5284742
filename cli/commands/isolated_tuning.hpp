#pragma once
/// \file
/// Tunes in another process, which a kernel may kill.

#include <chrono>
#include <memory>
#include <string>

#include "cache/cache.hpp"
#include "cli/commands/tuning_run.hpp"
#include "cli/json.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"
#include "tuner/tuner.hpp"

namespace ce::cli {

/// The only argument of ce-tune as such a process.
inline constexpr const char* tuning_worker_argument = "tuning-worker";

/// Lets another process tune problems with the same database. A config whose first launch kills that process, or does
/// not end, is quarantined with the reason, and a new process continues. If the user or the system ended the process,
/// no config is blamed: it is tried again.
class IsolatedTuning {
 public:
  /// Both references must outlive this object.
  /// \param launch_limit  time limit for the first launch of a config, its check against the reference and its first
  /// samples
  IsolatedTuning(const runtime::Device& device, cache::Cache& cache, TuningOptions options,
                 std::chrono::milliseconds launch_limit);
  ~IsolatedTuning();

  /// Like Tuner::search(), and throws its errors; also Error(device) if the process dies between launches, or if others
  /// end it twice; DatabaseError if the database does not accept a quarantine.
  /// \param settings  budget_s applies to each process: the time of processes that died comes on top
  tuner::Effort tune(const generator::Problem& problem, const tuner::Settings& settings,
                     const tuner::Hooks& hooks);

 private:
  class Worker;

  [[nodiscard]] Json job(const generator::Problem& problem, const tuner::Settings& settings) const;
  void quarantine(const generator::Problem& problem, const std::string& config, const std::string& reason);

  const runtime::Device& device_;
  cache::Cache& cache_;
  TuningOptions options_;
  std::chrono::milliseconds launch_limit_;
  std::unique_ptr<Worker> worker_;
};

/// Runs the other process: tunes what arrives on `in` and answers on `out`, until its parent closes `in` or ends.
/// \return the exit status: 0, or 1 with a line on standard error if the received data is invalid
[[nodiscard]] int tuning_worker_main(int in, int out);

}  // namespace ce::cli
