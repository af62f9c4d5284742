#pragma once
/// \file
/// The barrier of a cluster's threads, in two halves.

#include <cstddef>
#include <cstdint>

#include "runtime/host/report.hpp"
#include "runtime/host/thread_state.hpp"

namespace ce::runtime::host {

/// Every thread arrives and then waits, again and again; all of one round arrive at the same place.
class ClusterBarrier {
 public:
  explicit ClusterBarrier(const Report& report) : report_(report) {}
  void start(std::size_t threads) noexcept;

  /// True for the last of a round: those who wait for it may go on.
  /// \throws DeviceError for a thread that has not waited since it last arrived, or not where others did
  [[nodiscard]] bool arrive(ThreadState& thread, host_abi::Place place);
  /// True where the thread has to wait for others.
  /// \throws DeviceError for a thread that has not arrived
  [[nodiscard]] bool wait(ThreadState& thread, host_abi::Place place);
  /// To be called when the thread has returned from the kernel.
  /// \throws DeviceError for a thread that has arrived and not waited
  void check_end(const ThreadState& thread) const;

 private:
  const Report& report_;
  const ThreadState* first_ = nullptr;  // of this round
  std::size_t threads_ = 0, arrived_ = 0;
  std::uint64_t rounds_ = 0;  // that are complete
};

}  // namespace ce::runtime::host
