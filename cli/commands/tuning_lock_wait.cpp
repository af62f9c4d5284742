#include "cli/commands/tuning_lock_wait.hpp"

#include <algorithm>
#include <thread>

#include "ce/error.hpp"

namespace ce::cli {

std::optional<cache::TuningLock> wait_for_tuning_lock(const cache::Cache& cache, const cache::Key& key,
                                                      const std::stop_token& stop,
                                                      std::chrono::steady_clock::time_point deadline,
                                                      const std::function<void()>& waiting) {
  constexpr std::chrono::milliseconds pause{100};
  for (;;) {
    if (auto lock = cache.try_tuning_lock(key)) return lock;
    if (stop.stop_requested())
      throw Error(ErrorKind::interrupted, "stopped on request, while another process was tuning the problem");
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return std::nullopt;
    waiting();
    std::this_thread::sleep_until(std::min(now + pause, deadline));
  }
}

}  // namespace ce::cli
