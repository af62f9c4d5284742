#pragma once
/// \file
/// Tunes on a background thread. Not installed.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "generator/problem.hpp"

namespace ce {

/// Thread-safe. The first problem starts the thread; the destructor asks it to stop and waits.
class Background {
 public:
  /// Handles one problem. Must not throw.
  /// \returns whether it is done; if not, it is called again later
  using Task = std::function<bool(const generator::Problem&, const std::stop_token&)>;

  explicit Background(Task task) : task_(std::move(task)) {}
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  ~Background() { stop(); }

  /// Adds a problem, unless it was added before. Does nothing if no thread can be started.
  /// \param bucket  equal for all problems that share a kernel
  void add(const generator::Problem& bucket, const generator::Problem& problem);

  /// Accepts and handles no further problems. Returns when the running task has ended; from within a Task, at once.
  void stop();

  /// Whether stop() was called: no problem is handled any more.
  [[nodiscard]] bool has_stopped() const noexcept { return has_stopped_; }

 private:
  [[nodiscard]] bool start_once();
  void work(const std::stop_token& stop);

  Task task_;
  std::mutex mutex_;
  std::condition_variable_any added_;
  std::vector<generator::Problem> seen_;    ///< buckets of added problems
  std::deque<generator::Problem> waiting_;  ///< buckets to handle, the next one first
  bool stopped_ = false;
  std::thread::id id_;  ///< the thread's id, kept while another thread joins it
  std::mutex joining_;
  std::atomic<bool> has_stopped_ = false;
  std::jthread thread_;
};

}  // namespace ce
