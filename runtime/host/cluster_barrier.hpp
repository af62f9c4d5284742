#pragma once
/// \file
/// The barrier of a cluster's threads, in two halves.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/host/report.hpp"
#include "runtime/host/thread_state.hpp"

namespace ce::runtime::host {

/// Every thread arrives and then waits, again and again; all of one round arrive at the same place.
class ClusterBarrier {
 public:
  explicit ClusterBarrier(const Report& report) : report_(report) {}
  void start(std::size_t blocks, std::size_t threads_per_block) noexcept;

  /// True for the last of a round: those who wait for it may go on.
  /// \throws DeviceError for a thread that has not waited since it last arrived, or not where others did
  [[nodiscard]] bool arrive(const ThreadState& thread, host_abi::Place place);
  /// True where the thread has to wait for others.
  /// \throws DeviceError for a thread that has not arrived
  [[nodiscard]] bool wait(const ThreadState& thread, host_abi::Place place);
  /// To be called when the thread has returned from the kernel.
  /// \throws DeviceError for a thread that has arrived and not waited
  void check_end(const ThreadState& thread) const;

  /// In the present round.
  [[nodiscard]] bool has_arrived(const ThreadState& thread) const;

 private:
  struct Progress {
    std::uint64_t arrivals = 0, waits = 0;
    host_abi::Place arrived = {};  // the last time
  };
  [[nodiscard]] std::size_t index_of(const ThreadState& thread) const;

  const Report& report_;
  const ThreadState* first_ = nullptr;  // of this round
  std::vector<Progress> progress_;      // of each thread; empty until the first arrives
  std::size_t threads_ = 0, threads_per_block_ = 0, arrived_ = 0;
  std::uint64_t rounds_ = 0;  // that are complete
};

}  // namespace ce::runtime::host
