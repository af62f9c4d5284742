#pragma once
/// \file
/// Sweeps over several devices of this machine: a process for each, one result.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "cli/commands/problem_tuning.hpp"
#include "cli/commands/sweep_observer.hpp"
#include "cli/commands/sweep_result.hpp"

namespace ce::cli {

/// The devices of --device: "cuda:all", or names separated by commas; a single name is returned as it is. "host" may be
/// named more than once.
/// \param gpus  number of GPUs
/// \throws InvalidArgument naming --device, DeviceError for "cuda:all" without GPUs
[[nodiscard]] std::vector<std::string> device_list(const std::string& text, int gpus);

/// Hands out the jobs of a sweep. Thread-safe.
class WorkQueue {
 public:
  explicit WorkQueue(std::size_t jobs);

  struct Job {
    std::size_t index;
    bool waits;  ///< another process was tuning it, and no other job is left
  };
  /// The next job; waits if there is none but others may give theirs back. Nothing at the end.
  [[nodiscard]] std::optional<Job> take();
  /// Each taken job must be passed to one of these once: it is finished; it will be tried again when all others are
  /// finished; or another device will take it.
  void finish(std::size_t job);
  void skip(std::size_t job);
  /// \returns false if it was given back before: then it is finished
  [[nodiscard]] bool give_back(std::size_t job);
  /// Hands out no further jobs.
  void stop();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::size_t> open_, skipped_;
  std::set<std::size_t> given_back_;
  std::size_t taken_ = 0;
  bool stopped_ = false;
};

/// Tunes the problems of the result, each on any free device, those that move the most bytes first. The ceilings that
/// they need are jobs, too, and come first: each is searched once. At the end each device times the ceilings of the
/// problems that it tuned, for their reports. If a process dies, that is reported, another device gets its job once,
/// and the sweep goes on without its device.
/// \param result  also receives the devices and, from the first, the run's data
/// \throws InvalidArgument if the devices are not of one model; errors of opening one
void tune_on_devices(const std::vector<std::string>& devices, const std::filesystem::path& database,
                     const SearchOptions& options, SweepObserver& observer, const std::stop_token& stop,
                     SweepResult& result);

}  // namespace ce::cli
