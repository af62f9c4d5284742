#pragma once
/// \file
/// Builds configs on other threads while the device is busy with those that are ready.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <stop_token>
#include <system_error>
#include <thread>
#include <vector>

#include "tuner/kernel.hpp"

namespace ce::tuner {

/// Its methods are for one thread.
class BuildAhead {
 public:
  using Clock = std::chrono::steady_clock;

  /// A config that has been built, or that cannot be.
  struct Ready {
    std::size_t index;
    std::future<Built> built;  ///< throws what build() threw
  };

  /// Starts as many threads as the device compiles on to good effect, as far as they have work. Device and cache must
  /// outlive this object, whose end waits for the configs that are being built.
  BuildAhead(runtime::Device& device, cache::Cache& cache, const generator::Problem& problem,
             const std::vector<generator::Config>& configs)
      : device_(device),
        cache_(cache),
        problem_(problem),
        most_threads_(static_cast<std::size_t>(device.parallel_compiles())) {
    for (const generator::Config& config : configs) add(config);
  }

  BuildAhead(const BuildAhead&) = delete;
  BuildAhead& operator=(const BuildAhead&) = delete;
  /// All are asked to stop before any is waited for.
  ~BuildAhead() { stop(); }

  /// Builds it after all others. \returns its index, which counts from 0
  std::size_t add(const generator::Config& config) {
    std::size_t index = 0;
    {
      const std::lock_guard lock(mutex_);
      index = jobs_.size();
      jobs_.push_back({config, {}});
    }
    work_.notify_one();
    if (threads_.size() < most_threads_) start_thread();
    return index;
  }

  [[nodiscard]] bool is_building() const {
    const std::lock_guard lock(mutex_);
    return building_ > 0;
  }

  /// Compilers that have nothing to do while another one works. There may be fewer by now than at first.
  [[nodiscard]] std::size_t idle() const {
    const std::size_t most = std::min(most_threads_, static_cast<std::size_t>(device_.parallel_compiles()));
    const std::lock_guard lock(mutex_);
    return begun_ < jobs_.size() || building_ == 0 || building_ >= most ? 0 : most - building_;
  }

  /// Waits for the config at `index`; once for each, and not for those that next() gave. \throws what build() threw
  [[nodiscard]] Built take(std::size_t index) { return future_of(index).get(); }

  /// Waits for the next that is ready, whichever it is; nothing from the deadline on. Not to be called more often
  /// than there are configs, nor after take().
  [[nodiscard]] std::optional<Ready> next(Clock::time_point deadline) {
    if (Clock::now() >= deadline) return std::nullopt;
    std::size_t index = 0;
    {
      std::unique_lock lock(mutex_);
      if (!arrival_.wait_until(lock, deadline, [&] { return !ready_.empty(); })) return std::nullopt;
      index = ready_.front();
      ready_.pop_front();
    }
    return Ready{index, future_of(index)};
  }

  /// Starts no other config.
  void stop() {
    for (std::jthread& thread : threads_) thread.request_stop();
  }

 private:
  struct Job {
    generator::Config config;
    std::promise<Built> built;
  };

  std::future<Built> future_of(std::size_t index) {
    const std::lock_guard lock(mutex_);
    return jobs_[index].built.get_future();
  }

  void start_thread() {
    try {
      threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;  // the others go on
    }
  }

  /// Of a thread.
  void run(const std::stop_token& stop) {
    for (;;) {
      std::unique_lock lock(mutex_);
      if (!work_.wait(lock, stop, [&] { return begun_ < jobs_.size(); }) || stop.stop_requested()) return;
      const std::size_t index = begun_++;
      Job& job = jobs_[index];  // stays where it is
      ++building_;
      lock.unlock();
      try {
        job.built.set_value(build(device_, cache_, problem_, job.config));
      } catch (...) {
        job.built.set_exception(std::current_exception());
      }
      lock.lock();
      --building_;
      ready_.push_back(index);
      arrival_.notify_one();
    }
  }

  runtime::Device& device_;
  cache::Cache& cache_;
  const generator::Problem problem_;
  const std::size_t most_threads_;

  mutable std::mutex mutex_;
  std::condition_variable_any work_;
  std::condition_variable arrival_;
  std::deque<Job> jobs_;
  std::size_t begun_ = 0, building_ = 0;
  std::deque<std::size_t> ready_;
  std::vector<std::jthread> threads_;  // last: joined before the rest goes
};

}  // namespace ce::tuner
