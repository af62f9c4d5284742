#pragma once
/// \file
/// Runs the threads of a few blocks as fibers.

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/device.hpp"
#include "templates/device/host_abi.cuh"

namespace ce::runtime::host {

/// An entry point of a loaded shared object.
struct Kernel {
  std::string name;
  void (*entry)(const void* arguments) = nullptr;
  host_abi::Thread** (*current)() = nullptr;  ///< ce_host_thread of the shared object
  int max_threads = 0;
};

/// Runs the blocks of one group (a cluster, or a single block) together on the calling OS thread, and keeps their
/// stacks for the next group. Not thread safe.
///
/// The order is random and warp-greedy: a warp runs, its lanes in random order, until all of its lanes wait for other
/// warps. So every warp gets as far ahead of the others as the barriers allow, which exposes a missing barrier.
class GroupScheduler {
 public:
  explicit GroupScheduler(std::uint64_t seed);
  GroupScheduler(const GroupScheduler&) = delete;
  GroupScheduler& operator=(const GroupScheduler&) = delete;
  ~GroupScheduler();

  /// \param group  its index in the grid
  /// \throws DeviceError as Scheduler::run()
  void run(const Kernel& kernel, const Launch& launch, const void* arguments, std::uint64_t group);

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ce::runtime::host
