// Statistics over the blocks of a cluster, through distributed shared memory (sm_90).
#pragma once
#include "statistics.cuh"

namespace ce {

/// Over the cluster; every thread gets the result. Every block of the cluster must have started. Two calls in a row need
/// two arrays: only the cluster barrier of the second tells that all have read the first.
/// \param own  of the block, the same in all of its threads
template <int cluster>
CE_DEVICE Statistics cluster_join(const Statistics& own, Statistics (&shared)[cluster]) {
  if constexpr (cluster == 1) return own;
  if (thread_index() < cluster) *cluster_shared(&shared[cluster_rank()], thread_index()) = own;
  cluster_arrive();
  cluster_wait();
  constexpr int width = cluster <= 2 ? 2 : cluster <= 4 ? 4 : cluster <= 8 ? 8 : 16;  // a power of two
  const int other = lane_index() % width;
  return warp_join<width>(other < cluster ? shared[other] : Statistics{-infinity(), 0.f});
}

}  // namespace ce
