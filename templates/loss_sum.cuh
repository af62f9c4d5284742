// The reductions `mean` and `sum` of cross entropy: what runs before and after the kernel of the rows.
//
//   ce_count  counts the rows that are not ignored, for gradients that need the number
//   ce_sum    adds the losses of the rows: each block rows_per_sum of them, then the block that finishes last the sums
//             of all blocks. Every sum has a fixed order and no floating-point atomics: the same bits each run.
//
// The kernel of the rows starts while ce_count runs, and ce_sum while the last rows run; each waits by itself.
// Both leave Workspace::count and ::finished zero for the next call, so nothing has to be cleared in between.
#pragma once
#include "arguments.cuh"
#include "target.cuh"

namespace ce {

/// Threads of a block of either kernel.
constexpr int sum_threads = 1024;

struct SumShared {
  float sum[sum_threads / lanes];
  int64 count[sum_threads / lanes];
  bool last;
};
static_assert(sizeof(SumShared) <= 512, "what the generator asks for");

/// Over the block, in a fixed order; every thread of the first warp gets the result. Ends with all threads past a
/// barrier.
template <class T>
CE_DEVICE T block_sum(T x, T (&shared)[sum_threads / lanes]) {
  constexpr int warps = sum_threads / lanes;
#pragma unroll
  for (int mask = lanes / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  if (lane_index() == 0) shared[warp_index()] = x;
  block_barrier();
  T total = lane_index() < warps ? shared[lane_index()] : T(0);
#pragma unroll
  for (int mask = warps / 2; mask > 0; mask /= 2) total += shuffle_xor(total, mask);
  block_barrier();
  return total;
}

/// Adds visit(row) up over this thread's rows of the block, all loads in flight at once.
template <class T, class Visit>
CE_DEVICE T over_rows(const Arguments& arguments, const Visit& visit) {
  T sum = 0;
#pragma unroll
  for (int i = 0; i < rows_per_sum / sum_threads; ++i) {
    const int64 row = block_index() * rows_per_sum + i * sum_threads + thread_index();
    if (row < arguments.rows) sum += visit(row);
  }
  return sum;
}

/// This thread's share of the rows of the block that are not ignored.
CE_DEVICE int64 count_rows(const Arguments& arguments) {
  return over_rows<int64>(arguments,
                          [&](int64 row) { return int64(target_of(arguments, row) != arguments.ignore_index); });
}

}  // namespace ce

/// Counts the rows that are not ignored, before the kernel that needs their number.
CE_KERNEL(ce_count, ce::sum_threads) {
  using namespace ce;
  step_release();  // the kernel of the rows can load and reduce meanwhile
  SumShared& shared = shared_memory<SumShared>();
  const int64 count = block_sum(count_rows(arguments), shared.count);
  if (thread_index() == 0) atomic_add(&arguments.workspace->count, count);
}

/// Adds the losses up.
CE_KERNEL(ce_sum, ce::sum_threads) {
  using namespace ce;
  step_wait();
  constexpr bool counts = problem::mean && !problem::gradient;  // with a gradient, ce_count has counted
  SumShared& shared = shared_memory<SumShared>();
  Workspace& workspace = *arguments.workspace;

  const float own = over_rows<float>(arguments, [&](int64 row) { return workspace.losses[row]; });
  float total = block_sum(own, shared.sum);
  int64 count = 0;
  if constexpr (counts) count = block_sum(count_rows(arguments), shared.count);

  if (block_count() > 1) {
    float* block_sums = workspace.losses + arguments.rows;
    if (thread_index() == 0) {
      block_sums[block_index()] = total;
      if constexpr (counts) atomic_add(&workspace.count, count);
      device_fence();
      shared.last = atomic_add(&workspace.finished, 1) == block_count() - 1;
    }
    block_barrier();
    if (!shared.last) return;

    device_fence();
    total = 0.f;
#pragma unroll 1
    for (int64 block = thread_index(); block < block_count(); block += sum_threads)
      total += load_element<Load::cg>(block_sums + block);
    total = block_sum(total, shared.sum);
    count = 0;  // it is in the workspace
  }
  if (thread_index() == 0) {
    if constexpr (problem::mean) total /= float(count + atomic_add(&workspace.count, 0));
    *static_cast<problem::Loss*>(arguments.loss) = from_float<problem::Loss>(total);
    workspace.count = 0;
    workspace.finished = 0;
  }
}
