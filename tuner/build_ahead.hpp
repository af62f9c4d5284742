#pragma once
/// \file
/// Builds configs on other threads while the device is busy with those that are ready.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tuner/kernel.hpp"

namespace ce::tuner {

class BuildAhead {
 public:
  using Clock = std::chrono::steady_clock;

  /// A config that has been built, or that cannot be.
  struct Ready {
    std::size_t index;
    std::future<Built> built;  ///< throws what build() threw
  };

  /// Starts as many threads as the device compiles on to good effect. Device and cache must outlive this
  /// object, whose end waits for the configs that are being built.
  BuildAhead(runtime::Device& device, cache::Cache& cache, const generator::Problem& problem,
             std::vector<generator::Config> configs)
      : problem_(problem), configs_(std::move(configs)), results_(configs_.size()) {
    const auto count =
        std::min<std::size_t>(configs_.size(), static_cast<std::size_t>(device.parallel_compiles()));
    for (std::size_t i = 0; i < count; ++i)
      threads_.emplace_back([&](const std::stop_token& stop) {
        for (std::size_t next = next_++; next < configs_.size() && !stop.stop_requested(); next = next_++) {
          try {
            results_[next].set_value(build(device, cache, problem_, configs_[next]));
          } catch (...) {
            results_[next].set_exception(std::current_exception());
          }
          announce(next);
        }
      });
  }

  BuildAhead(const BuildAhead&) = delete;
  BuildAhead& operator=(const BuildAhead&) = delete;
  /// All are asked to stop before any is waited for.
  ~BuildAhead() { stop(); }

  /// Waits for the config at `index`; once for each, and not for those that next() gave. \throws what build() threw
  [[nodiscard]] Built take(std::size_t index) { return results_[index].get_future().get(); }

  /// Waits for the next that is ready, whichever it is; nothing from the deadline on. Not to be called more often
  /// than there are configs, nor after take().
  [[nodiscard]] std::optional<Ready> next(Clock::time_point deadline) {
    if (Clock::now() >= deadline) return std::nullopt;
    std::unique_lock lock(mutex_);
    if (!arrival_.wait_until(lock, deadline, [&] { return !ready_.empty(); })) return std::nullopt;
    const std::size_t index = ready_.front();
    ready_.pop_front();
    return Ready{index, results_[index].get_future()};
  }

  /// Starts no other config.
  void stop() {
    for (std::jthread& thread : threads_) thread.request_stop();
  }

 private:
  void announce(std::size_t index) {
    const std::lock_guard lock(mutex_);
    ready_.push_back(index);
    arrival_.notify_one();
  }

  generator::Problem problem_;
  std::vector<generator::Config> configs_;
  std::vector<std::promise<Built>> results_;
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;
  std::condition_variable arrival_;
  std::deque<std::size_t> ready_;
  std::vector<std::jthread> threads_;  // last: joined before the results go
};

}  // namespace ce::tuner
