// Parts of a row over the blocks of a cluster, through distributed shared memory (sm_90).
#pragma once
#include "part.cuh"

namespace ce {

/// Over the cluster; every thread gets the result. Every block of the cluster must have started. Two calls in
/// a row need two arrays: only the cluster barrier of the second tells that all have read the first.
/// \param own  of the block, the same in all of its threads
template <int cluster, class Part>
CE_DEVICE Part cluster_join(const Part& own, Part (&shared)[cluster], float c) {
  if constexpr (cluster == 1) return own;
  if (thread_index() < cluster) cluster_shared(&shared[cluster_rank()], thread_index())->assign(own);
  cluster_arrive();
  cluster_wait();
  constexpr int width = cluster <= 2 ? 2 : cluster <= 4 ? 4 : cluster <= 8 ? 8 : 16;  // a power of two
  const int other = lane_index() % width;
  Part part;
  if (other < cluster) part.assign(shared[other]);
  return warp_join<width>(part, c);
}

}  // namespace ce
