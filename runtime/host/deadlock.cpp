#include "runtime/host/deadlock.hpp"

#include <fmt/format.h>

namespace ce::runtime::host {

std::string Deadlock::explain(const Fiber& waiting) const {
  // A thread that has returned explains more than a thread that waits elsewhere.
  const Fiber* other = nullptr;
  for (const Fiber& fiber : expected_with(waiting)) {
    if (has_arrived(fiber, waiting)) continue;
    if (other == nullptr || fiber.state == State::finished) other = &fiber;
    if (fiber.state == State::finished) break;
  }
  std::string known = fmt::format("thread {} {}", waiting.index, standing(waiting));
  if (other == nullptr) return known;  // all wait for mbarriers
  return fmt::format("{}, but {} {}", known, name(*other, *waiting.block), standing(*other));
}

/// The thread's location, and the progress of the barrier that it waits for.
std::string Deadlock::standing(const Fiber& fiber) const {
  if (fiber.state != State::waiting || fiber.awaited != Awaited::mbarrier) return whereabouts(fiber);
  return fmt::format("{} after {}", whereabouts(fiber), mbarriers.progress(fiber));
}

/// All threads of its warp, block or cluster. An arrival at an mbarrier may come from anywhere in the cluster.
std::span<const Fiber> Deadlock::expected_with(const Fiber& waiting) const {
  if (waiting.awaited == Awaited::cluster || waiting.awaited == Awaited::mbarrier) return fibers;
  const std::size_t size = waiting.awaited == Awaited::warp ? host_abi::lanes : threads_per_block;
  const auto index = static_cast<std::size_t>(&waiting - fibers.data());
  return fibers.subspan(index / size * size, size);
}

/// Whether the thread has arrived at the barrier that the other waits for.
bool Deadlock::has_arrived(const Fiber& fiber, const Fiber& waiting) const {
  if (waiting.awaited == Awaited::cluster) return cluster_barrier.has_arrived(fiber);
  return fiber.state == State::waiting && fiber.awaited == waiting.awaited;
}

}  // namespace ce::runtime::host
