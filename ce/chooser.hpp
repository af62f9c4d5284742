#pragma once
/// \file
/// Which kernel runs for a problem. Not installed.

#include <atomic>
#include <memory>
#include <mutex>

#include "cache/cache.hpp"
#include "ce/context.hpp"
#include "ce/plan_table.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"
#include "tuner/tuner.hpp"

namespace ce {

/// The kernels chosen so far; behind them what the database knows, and behind that the tuner. Thread-safe.
class Chooser {
 public:
  /// Both must outlive the Chooser.
  Chooser(runtime::Device& device, cache::Cache& cache, const tuner::Settings& settings, Policy policy);

  /// Never tunes for a stream that is being captured. What it returns stays good as long as the Chooser.
  /// \throws InvalidArgument for a problem that is none, Unsupported, CompileError, DeviceError
  const Chosen& choose(const generator::Problem& problem, Stream stream);

  /// How many kernels had to be compiled.
  [[nodiscard]] int compiled() const noexcept { return compiled_; }

 private:
  std::unique_ptr<Chosen> from_database(const generator::Problem& problem);
  std::unique_ptr<Chosen> from_tuning(const generator::Problem& problem);
  std::unique_ptr<Chosen> without_tuning(const generator::Problem& problem);
  std::unique_ptr<Chosen> load(const generator::Problem& problem, const tuner::Built& built, Choice choice);

  runtime::Device& device_;
  cache::Cache& cache_;
  Policy policy_;
  PlanTable plans_;
  std::mutex tuning_;  ///< guards the tuner; threads that meet the same new problem wait for one answer
  tuner::Tuner tuner_;
  std::atomic<int> compiled_ = 0;
};

}  // namespace ce
