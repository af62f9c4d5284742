#pragma once
/// \file
/// Tuning in another process, which may die of a kernel.

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

/// What makes ce-tune the other process, as its only argument.
inline constexpr const char* tuning_worker_argument = "tuning-worker";

/// Has problems tuned by another process that writes into the same database. A config whose first launch kills
/// that process, or does not end, is quarantined with the reason, and a new process goes on with the rest. What
/// the user or the system ended is no fault of a config: it is tried again.
class IsolatedTuning {
 public:
  /// Both references must outlive this object.
  /// \param launch_limit  for the first launch of a config, its check against the reference and its first samples
  IsolatedTuning(const runtime::Device& device, cache::Cache& cache, TuningOptions options,
                 std::chrono::milliseconds launch_limit);
  ~IsolatedTuning();

  /// As Tuner::search(), whose errors it throws; Error(device) where the process dies between launches, or where
  /// others end it twice; DatabaseError where the database does not take a quarantine.
  /// \param settings  whose budget_s is of each process: what those cost that died comes on top, until their end
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

/// The other process: tunes what arrives on `in` and answers on `out`, until its parent closes `in` or ends.
/// \return the exit status: 0, or 1 when what arrived was no conversation, with a line on standard error
[[nodiscard]] int tuning_worker_main(int in, int out);

}  // namespace ce::cli
