#include "runtime/host/cluster_barrier.hpp"

#include <fmt/format.h>

namespace ce::runtime::host {

void ClusterBarrier::start(std::size_t blocks, std::size_t threads_per_block) noexcept {
  threads_ = blocks * threads_per_block;
  threads_per_block_ = threads_per_block;
  progress_.clear();
  arrived_ = 0;
  rounds_ = 0;
}

bool ClusterBarrier::arrive(const ThreadState& thread, host_abi::Place place) {
  if (progress_.empty()) progress_.resize(threads_);
  Progress& progress = progress_[index_of(thread)];
  if (progress.arrivals != progress.waits)
    throw report_.mistake(
        thread,
        fmt::format("arrives at its cluster's barrier again, without a wait since it arrived at {},",
                    text(progress.arrived)),
        place);
  if (arrived_ == 0) first_ = &thread;
  progress = {.arrivals = progress.arrivals + 1, .waits = progress.waits, .arrived = place};
  if (const host_abi::Place first = progress_[index_of(*first_)].arrived; !same(first, place))
    throw report_.mistake(thread,
                          fmt::format("arrives at its cluster's barrier, where {} arrived at {},",
                                      name(*first_, *thread.block), text(first)),
                          place);
  if (++arrived_ < threads_) return false;
  arrived_ = 0;
  ++rounds_;
  return true;
}

bool ClusterBarrier::wait(const ThreadState& thread, host_abi::Place place) {
  if (progress_.empty() || progress_[index_of(thread)].arrivals == progress_[index_of(thread)].waits)
    throw report_.mistake(thread, "waits for its cluster's barrier without having arrived at it", place);
  return rounds_ < ++progress_[index_of(thread)].waits;
}

void ClusterBarrier::check_end(const ThreadState& thread) const {
  if (progress_.empty()) return;
  const Progress& progress = progress_[index_of(thread)];
  if (progress.arrivals != progress.waits)
    throw report_.mistake(thread, "returned without having waited for its cluster since it arrived",
                          progress.arrived);
}

bool ClusterBarrier::has_arrived(const ThreadState& thread) const {
  return !progress_.empty() && progress_[index_of(thread)].arrivals > rounds_;
}

std::size_t ClusterBarrier::index_of(const ThreadState& thread) const {
  return static_cast<std::size_t>(thread.block->rank) * threads_per_block_ +
         static_cast<std::size_t>(thread.index);
}

}  // namespace ce::runtime::host
