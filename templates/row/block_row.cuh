// Operations of all threads of a block on one row, or a slice of it: merging statistics, and writing one value.
#pragma once
#include "row/operation.cuh"

namespace ce {

/// Merges over the block; every thread gets the result. Orders the memory accesses before it with those after it, for
/// all threads of the block.
/// \tparam rescaled  all lanes of a warp have the same maximum
template <int warps, bool rescaled = false, class Stats>
CE_DEVICE Stats block_merge(const Stats& stats, Stats (&shared)[warps], float c) {
  const Stats own = warp_merge<lanes, rescaled>(stats, c);
  if constexpr (warps == 1) {
    warp_barrier();
    return own;
  }
  if (lane_index() == 0) shared[warp_index()].assign(own);
  block_barrier();
  Stats other;
  other.assign(shared[lane_index() % warps]);
  return warp_merge<warps>(other, c);
}

/// Writes one value to the vectors [begin, end) of a row and to this thread's edge element.
template <Store modifier, int threads, class T, class Partition>
CE_DEVICE void fill_row(const Row<T>& row, const Partition& partition, int begin, int end, int thread,
                        int edge, float value) {
  const auto vector = Vector<T, Partition::elements>::filled(value);
  for (int v = begin + thread; v < end; v += threads)
    if (partition.inside(v)) row.template write<modifier>(partition.column_of(v), vector);
  if (edge >= 0) row.template write_element<modifier>(edge, Vector<T, 1>::filled(value));
}

}  // namespace ce
