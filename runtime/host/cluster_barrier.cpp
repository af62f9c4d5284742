#include "runtime/host/cluster_barrier.hpp"

#include <fmt/format.h>

namespace ce::runtime::host {

void ClusterBarrier::start(std::size_t threads) noexcept {
  threads_ = threads;
  arrived_ = 0;
  rounds_ = 0;
}

bool ClusterBarrier::arrive(ThreadState& thread, host_abi::Place place) {
  if (thread.cluster_arrivals != thread.cluster_waits)
    throw report_.mistake(thread,
                          fmt::format("has not waited for its cluster since it arrived at {}, and arrives",
                                      text(thread.arrived)),
                          place);
  ++thread.cluster_arrivals;
  thread.arrived = place;
  if (arrived_ == 0) first_ = &thread;
  if (!same(first_->arrived, place))
    throw report_.mistake(thread,
                          fmt::format("arrives at its cluster's barrier, to which {} came at {},",
                                      name(*first_, *thread.block), text(first_->arrived)),
                          place);
  if (++arrived_ < threads_) return false;
  arrived_ = 0;
  ++rounds_;
  return true;
}

bool ClusterBarrier::wait(ThreadState& thread, host_abi::Place place) {
  if (thread.cluster_arrivals == thread.cluster_waits)
    throw report_.mistake(thread, "has not arrived at its cluster's barrier, and waits for it", place);
  ++thread.cluster_waits;
  return rounds_ < thread.cluster_waits;
}

void ClusterBarrier::check_end(const ThreadState& thread) const {
  if (thread.cluster_arrivals != thread.cluster_waits)
    throw report_.mistake(thread, "returned without having waited for its cluster since it arrived",
                          thread.arrived);
}

}  // namespace ce::runtime::host
