#pragma once
/// \file
/// The barrier of a cluster's threads, in two halves.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/host/report.hpp"
#include "runtime/host/thread_state.hpp"

namespace ce::runtime::host {

/// Every thread arrives and then waits, repeatedly; all threads of one round must arrive at the same source location.
class ClusterBarrier {
 public:
  explicit ClusterBarrier(const Report& report) : report_(report) {}
  void start(std::size_t blocks, std::size_t threads_per_block) noexcept;

  /// Returns true for the last arrival of a round: the waiting threads may continue.
  /// \throws DeviceError for a thread that has not waited since it last arrived, or arrives at another source location
  [[nodiscard]] bool arrive(const ThreadState& thread, host_abi::Place place);
  /// Returns true if the thread must wait for others.
  /// \throws DeviceError for a thread that has not arrived
  [[nodiscard]] bool wait(const ThreadState& thread, host_abi::Place place);
  /// Called when the thread has returned from the kernel.
  /// \throws DeviceError for a thread that has arrived and not waited
  void check_end(const ThreadState& thread) const;

  /// Whether the thread has arrived in the current round.
  [[nodiscard]] bool has_arrived(const ThreadState& thread) const;

 private:
  struct Progress {
    std::uint64_t arrivals = 0, waits = 0;
    host_abi::Place arrived = {};  // in the last round
  };
  [[nodiscard]] std::size_t index_of(const ThreadState& thread) const;

  const Report& report_;
  const ThreadState* first_ = nullptr;  // first arrival of this round
  std::vector<Progress> progress_;      // of each thread; empty until the first arrives
  std::size_t threads_ = 0, threads_per_block_ = 0, arrived_ = 0;
  std::uint64_t rounds_ = 0;  // number of completed rounds
};

}  // namespace ce::runtime::host
