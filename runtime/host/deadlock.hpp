#pragma once
/// \file
/// A launch that does not end, in words.

#include <cstddef>
#include <span>
#include <string>

#include "runtime/host/cluster_barrier.hpp"
#include "runtime/host/fiber.hpp"
#include "runtime/host/mbarriers.hpp"

namespace ce::runtime::host {

/// What the threads of a group wait for, when none of them can run.
struct Deadlock {
  std::span<const Fiber> fibers;  ///< block after block
  std::size_t threads_per_block;
  const ClusterBarrier& cluster_barrier;
  const Mbarriers& mbarriers;

  /// Where this thread waits, and which one is not there.
  [[nodiscard]] std::string explain(const Fiber& waiting) const;

 private:
  [[nodiscard]] std::string standing(const Fiber& fiber) const;
  [[nodiscard]] std::span<const Fiber> expected_with(const Fiber& waiting) const;
  [[nodiscard]] bool has_arrived(const Fiber& fiber, const Fiber& waiting) const;
};

}  // namespace ce::runtime::host
