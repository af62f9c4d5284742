#pragma once
/// \file
/// A sweep over several devices of this machine: a process for each, one result.

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

/// The devices of --device: "cuda:all", or names with commas between; a single name is returned as it is. "host" may be
/// named more than once.
/// \param gpus  how many there are
/// \throws InvalidArgument naming --device, DeviceError for all of none
[[nodiscard]] std::vector<std::string> device_list(const std::string& text, int gpus);

/// Which job of a sweep is whose turn. Thread-safe.
class WorkQueue {
 public:
  explicit WorkQueue(std::size_t jobs);

  struct Turn {
    std::size_t job;
    bool waits;  ///< another process was tuning it; there is nothing else left to do
  };
  /// The next job; waits while there is none but others may give theirs back. Nothing at the end.
  [[nodiscard]] std::optional<Turn> take();
  /// Of a job that was taken, each once: it is done with; is to be looked at again when all others are done with; or is
  /// to be taken by another.
  void finish(std::size_t job);
  void pass_over(std::size_t job);
  /// \returns false where it was given back before: then it is done with
  [[nodiscard]] bool give_back(std::size_t job);
  /// Nothing more is taken.
  void stop();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::size_t> open_, passed_over_;
  std::set<std::size_t> given_back_;
  std::size_t taken_ = 0;
  bool stopped_ = false;
};

/// Tunes the problems of the result, each on whichever device is free, those that move the most bytes first. The ceilings
/// that they need are jobs as problems are, before them: each is searched once. At its end each device times the
/// ceilings of the problems that it tuned, for their reports. A process that dies is told of, its job goes to another
/// once, and the rest goes on without its device.
/// \param result  also gets its devices and, of the first, what is of the run
/// \throws InvalidArgument where the devices are not of one model; what opening one throws
void tune_on_devices(const std::vector<std::string>& devices, const std::filesystem::path& database,
                     const SearchOptions& options, SweepObserver& observer, const std::stop_token& stop,
                     SweepResult& result);

}  // namespace ce::cli
