// Parts of a row over the blocks of a cluster, through distributed shared memory (sm_90).
#pragma once
#include "row/message.cuh"

namespace ce {

/// Where the blocks of a cluster tell each other their parts, once.
template <class Part, int cluster>
struct ClusterJoin {
  using Told = Message<Part, false>;
  Told parts[cluster];
  Arrival told;

  /// By one thread, before a barrier of the cluster.
  CE_DEVICE void init() {
    if constexpr (cluster == 1) return;
    arrival_init(told);
    arrival_expect(told, cluster * Told::bytes);
  }
  /// Over the cluster; every thread gets the result. Every block of the cluster must have called init().
  /// \param own  of the block, the same in all of its threads
  CE_DEVICE Part join(const Part& own, float c) {
    if constexpr (cluster == 1) return own;
    if (thread_index() < cluster) Told::about(own).send(parts[cluster_rank()], told, thread_index());
    arrival_wait(told);
    constexpr int width = cluster <= 2 ? 2 : cluster <= 4 ? 4 : cluster <= 8 ? 8 : 16;  // a power of two
    Part part;
    problem::Element none;
    if (const int other = lane_index() % width; other < cluster) parts[other].read(part, none);
    return warp_join<width>(part, c);
  }
};

}  // namespace ce
