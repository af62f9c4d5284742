#pragma once
/// \file
/// Builds configs on other threads while the device is busy with those that are ready.

#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tuner/kernel.hpp"

namespace ce::tuner {

class BuildAhead {
 public:
  using Clock = std::chrono::steady_clock;

  /// Starts as many threads as the device compiles on to good effect. Device and cache must outlive this
  /// object, whose end waits for the configs that are being built.
  BuildAhead(runtime::Device& device, cache::Cache& cache, const generator::Problem& problem,
             std::vector<generator::Config> configs)
      : problem_(problem), configs_(std::move(configs)), results_(configs_.size()) {
    const auto count =
        std::min<std::size_t>(configs_.size(), static_cast<std::size_t>(device.parallel_compiles()));
    for (std::size_t i = 0; i < count; ++i)
      threads_.emplace_back([&](const std::stop_token& stop) {
        for (std::size_t next = next_++; next < configs_.size() && !stop.stop_requested(); next = next_++)
          try {
            results_[next].set_value(build(device, cache, problem_, configs_[next]));
          } catch (...) {
            results_[next].set_exception(std::current_exception());
          }
      });
  }

  /// Waits for the config at `index`; once for each. \throws what build() threw
  [[nodiscard]] Built take(std::size_t index) { return results_[index].get_future().get(); }

  /// The same, but nothing where it is not built by then.
  [[nodiscard]] std::optional<Built> take(std::size_t index, Clock::time_point deadline) {
    std::future<Built> built = results_[index].get_future();
    if (built.wait_until(deadline) != std::future_status::ready) return std::nullopt;
    return built.get();
  }

  /// Starts no other config.
  void stop() {
    for (std::jthread& thread : threads_) thread.request_stop();
  }

 private:
  generator::Problem problem_;
  std::vector<generator::Config> configs_;
  std::vector<std::promise<Built>> results_;
  std::atomic<std::size_t> next_ = 0;
  std::vector<std::jthread> threads_;  // last: joined before the results go
};

}  // namespace ce::tuner
