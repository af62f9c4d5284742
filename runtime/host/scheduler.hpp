#pragma once
/// \file
/// Spreads the blocks of a grid over OS threads.

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/device.hpp"
#include "runtime/host/group.hpp"

namespace ce::runtime::host {

/// Thread safe: any number of grids run at the same time.
class Scheduler {
 public:
  /// \param workers  largest number of OS threads for one grid
  Scheduler(std::uint64_t seed, int workers);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }

  /// Returns after the last block has ended. The order in which a group's threads run depends on the seed and
  /// the group's index alone. `launch.blocks` is a multiple of `launch.cluster`, `launch.threads` of 32.
  /// \throws DeviceError for the first block, by index, in which a barrier is not reached by all threads, or not at the
  /// same source location; an access is misaligned; a write leaves shared memory; or clusters or bulk loads are used
  /// wrongly. Later blocks may not have run.
  void run(const Kernel& kernel, const Launch& launch, const void* arguments);

 private:
  std::unique_ptr<GroupScheduler> borrow();
  void give_back(std::unique_ptr<GroupScheduler> group);

  std::uint64_t seed_;
  int workers_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<GroupScheduler>> idle_;  // idle schedulers keep their stacks
};

}  // namespace ce::runtime::host
