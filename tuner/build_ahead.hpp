#pragma once
/// \file
/// Builds configs on other threads while the device is busy with those that are ready.

#include <atomic>
#include <exception>
#include <future>
#include <span>
#include <thread>
#include <variant>
#include <vector>

#include "tuner/kernel.hpp"

namespace ce::tuner {

class BuildAhead {
 public:
  /// Starts as many threads as the device compiles on to good effect. All references must outlive this
  /// object.
  BuildAhead(runtime::Device& device, cache::Cache& cache, const generator::Problem& problem,
             std::span<const generator::Config> configs)
      : results_(configs.size()) {
    const auto count =
        std::min<std::size_t>(configs.size(), static_cast<std::size_t>(device.parallel_compiles()));
    for (std::size_t i = 0; i < count; ++i)
      threads_.emplace_back([&, configs](const std::stop_token& stop) {
        for (std::size_t next = next_++; next < configs.size() && !stop.stop_requested(); next = next_++)
          try {
            results_[next].set_value(build(device, cache, problem, configs[next]));
          } catch (...) {
            results_[next].set_exception(std::current_exception());
          }
      });
  }

  /// Waits for the config at `index`; once for each. \throws what build() threw
  [[nodiscard]] Built take(std::size_t index) { return results_[index].get_future().get(); }

 private:
  std::vector<std::promise<Built>> results_;
  std::atomic<std::size_t> next_ = 0;
  std::vector<std::jthread> threads_;  // last: joined before the results go
};

}  // namespace ce::tuner
