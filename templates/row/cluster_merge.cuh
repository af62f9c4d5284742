// The statistics of a row over the blocks of a cluster, through distributed shared memory (sm_90).
#pragma once
#include "row/message.cuh"

namespace ce {

/// Shared memory in which the blocks of a cluster publish their statistics, once.
template <class Stats, int cluster>
struct ClusterMerge {
  using RowMessage = Message<Stats, false>;
  RowMessage messages[cluster];
  Mbarrier published;

  /// Initialises the mbarrier. By one thread, before a barrier of the cluster.
  CE_DEVICE void init() {
    if constexpr (cluster == 1) return;
    mbarrier_init(published);
    mbarrier_arrive_expect_tx(published, cluster * RowMessage::bytes);
  }
  /// Merges over the cluster; every thread gets the result. Every block of the cluster must have called init().
  /// \param own  the block's statistics, equal in all of its threads
  CE_DEVICE Stats merge(const Stats& own, float c) {
    if constexpr (cluster == 1) return own;
    if (thread_index() < cluster)
      RowMessage::about(own).send(messages[cluster_rank()], published, thread_index());
    mbarrier_wait(published);
    constexpr int width = cluster <= 2 ? 2 : cluster <= 4 ? 4 : cluster <= 8 ? 8 : 16;  // a power of two
    Stats stats;
    problem::Element none;
    if (const int other = lane_index() % width; other < cluster) messages[other].read(stats, none);
    return warp_merge<width>(stats, c);
  }
};

}  // namespace ce
