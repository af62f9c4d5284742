#include "cli/commands/claim_wait.hpp"

#include <algorithm>
#include <thread>

#include "ce/error.hpp"

namespace ce::cli {

std::optional<cache::Claim> wait_for_claim(const cache::Cache& cache, const cache::Key& key,
                                           const std::stop_token& stop,
                                           std::chrono::steady_clock::time_point deadline,
                                           const std::function<void()>& waiting) {
  constexpr std::chrono::milliseconds pause{100};
  for (;;) {
    if (auto claim = cache.claim(key)) return claim;
    if (stop.stop_requested())
      throw Error(ErrorKind::interrupted, "stopped on request, while another process was tuning the problem");
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return std::nullopt;
    waiting();
    std::this_thread::sleep_until(std::min(now + pause, deadline));
  }
}

}  // namespace ce::cli
