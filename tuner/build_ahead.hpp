#pragma once
/// \file
/// Builds configs on other threads while the device is busy with those that are ready.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
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
    std::future<generator::Program> built;  ///< throws what build() threw
  };

  /// Starts as many threads as the device compiles on to good effect, as far as they have work. Device and cache must
  /// outlive this object.
  BuildAhead(runtime::Device& device, cache::Cache& cache, const generator::Problem& problem,
             std::span<const generator::Config> configs = {});
  BuildAhead(const BuildAhead&) = delete;
  BuildAhead& operator=(const BuildAhead&) = delete;
  /// Waits for the configs that are being built.
  ~BuildAhead();

  /// Builds it after all others. \returns its index, which counts from 0
  std::size_t add(const generator::Config& config);

  [[nodiscard]] bool is_building() const;
  /// Compilers that have nothing to do while another one works. There may be fewer by now than at first.
  [[nodiscard]] std::size_t idle() const;

  /// Waits for the config at `index`; once for each, and not for those that next() gave. \throws what build() threw
  [[nodiscard]] generator::Program take(std::size_t index) { return future_of(index).get(); }

  /// Waits for the next that is ready, whichever it is; nothing from the deadline on. Not to be called more often
  /// than there are configs, nor after take().
  [[nodiscard]] std::optional<Ready> next(Clock::time_point deadline);

  /// Starts no other config.
  void stop();

  /// After stop(): waits for the next of those that were begun, however long it takes; nothing where there is none.
  [[nodiscard]] std::optional<Ready> next_begun();

 private:
  struct Job {
    generator::Config config;
    std::promise<generator::Program> built;
  };

  std::future<generator::Program> future_of(std::size_t index);
  void start_thread();
  void run(const std::stop_token& stop);  ///< of a thread

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
  std::vector<std::jthread> threads_;  ///< last: joined before the rest goes
};

}  // namespace ce::tuner
