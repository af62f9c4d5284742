#pragma once
/// \file
/// A thread that tunes while calls go on. Not installed.

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

/// Thread-safe. The thread starts with the first problem; the end of this object asks it to stop and waits.
class Background {
 public:
  /// Settles one problem. Must not throw.
  /// \returns whether it is settled; false to be asked again later
  using Task = std::function<bool(const generator::Problem&, const std::stop_token&)>;

  explicit Background(Task task) : task_(std::move(task)) {}
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  ~Background() { stop(); }

  /// Each problem is taken once, however often it is added; none where no thread can be started.
  /// \param bucket  the same for all problems that share a kernel
  void add(const generator::Problem& bucket, const generator::Problem& problem);

  /// What is not settled by then stays as it is, and nothing is taken any more. Returns when nothing is at work; from a
  /// Task, at once.
  void stop();

  /// Whether stop() has returned: nothing is settled any more.
  [[nodiscard]] bool has_stopped() const noexcept { return has_stopped_; }

 private:
  [[nodiscard]] bool start_once();
  void work(const std::stop_token& stop);

  Task task_;
  std::mutex mutex_;
  std::condition_variable_any added_;
  std::vector<generator::Problem> seen_;    ///< buckets
  std::deque<generator::Problem> waiting_;  ///< the next one first
  bool stopped_ = false;
  std::thread::id id_;  ///< of the thread, also while another one joins it
  std::mutex joining_;
  std::atomic<bool> has_stopped_ = false;
  std::jthread thread_;
};

}  // namespace ce
