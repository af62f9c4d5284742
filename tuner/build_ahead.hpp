#pragma once
/// \file
/// Builds configs on other threads while the device runs those that are ready.

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

/// Not thread-safe.
class BuildAhead {
 public:
  using Clock = std::chrono::steady_clock;

  /// A config whose build has ended.
  struct Ready {
    std::size_t index;
    std::future<generator::Program> built;  ///< throws the errors of build()
  };

  /// Starts as many threads as the device compiles on in parallel, if they have work. Device and cache must outlive
  /// this object.
  BuildAhead(runtime::Device& device, cache::Cache& cache, const generator::Problem& problem,
             std::span<const generator::Config> configs = {});
  BuildAhead(const BuildAhead&) = delete;
  BuildAhead& operator=(const BuildAhead&) = delete;
  /// Waits for the builds that are running.
  ~BuildAhead();

  /// Adds a config behind all others. \returns its index, which counts from 0
  std::size_t add(const generator::Config& config);

  [[nodiscard]] bool is_building() const;
  /// Number of compilers without work while another one works. There may be fewer than at the start.
  [[nodiscard]] std::size_t idle() const;

  /// Waits for the config at `index`; only once for each, and not for those that next() returned. \throws the errors of
  /// build()
  [[nodiscard]] generator::Program take(std::size_t index) { return future_of(index).get(); }

  /// Waits for any config that becomes ready; nothing once the deadline has passed. Must not be called more often than
  /// there are configs, nor after take().
  [[nodiscard]] std::optional<Ready> next(Clock::time_point deadline);

  /// Starts no further builds.
  void stop();

  /// After stop(): waits for any of the running builds, without a limit; nothing if there are none.
  [[nodiscard]] std::optional<Ready> next_begun();

 private:
  struct Job {
    generator::Config config;
    std::promise<generator::Program> built;
  };

  std::future<generator::Program> future_of(std::size_t index);
  void start_thread();
  void run(const std::stop_token& stop);  ///< the function of each thread

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
  std::vector<std::jthread> threads_;  ///< last: joined before other members are destroyed
};

}  // namespace ce::tuner
