#pragma once
/// \file
/// Describes a launch that does not end.

#include <cstddef>
#include <span>
#include <string>

#include "runtime/host/cluster_barrier.hpp"
#include "runtime/host/fiber.hpp"
#include "runtime/host/mbarriers.hpp"

namespace ce::runtime::host {

/// Explains what a group's threads wait for when none of them can run.
struct Deadlock {
  std::span<const Fiber> fibers;  ///< block after block
  std::size_t threads_per_block;
  const ClusterBarrier& cluster_barrier;
  const Mbarriers& mbarriers;

  /// Describes where this thread waits, and which thread is missing.
  [[nodiscard]] std::string explain(const Fiber& waiting) const;

 private:
  [[nodiscard]] std::string standing(const Fiber& fiber) const;
  [[nodiscard]] std::span<const Fiber> expected_with(const Fiber& waiting) const;
  [[nodiscard]] bool has_arrived(const Fiber& fiber, const Fiber& waiting) const;
};

}  // namespace ce::runtime::host
