// The reductions `mean` and `sum` of cross entropy: kernels before and after the kernel of the rows, if that does not
// reduce itself (fused_sums.cuh).
//
//   ce_count  finds how many rows are not ignored and what the weights of their targets add up to, for
//             gradients that need to know
//   ce_sum    adds the losses of the rows, and divides them for a mean
//
// Each block processes rows_per_sum rows, and further ones if there are more rows than all blocks cover; the block that
// finishes last adds up the results of all. Every sum has a fixed order and there are no floating-point atomics: the
// same bits each run. The kernel of the rows starts while ce_count runs, and ce_sum while the last rows run; each waits
// itself. Both leave Workspace::finished zero for the next call, so nothing has to be cleared in between.
#pragma once
#include "operations/reduction.cuh"

namespace ce {

/// Threads of a block of either kernel.
constexpr int sum_threads = 1024;

/// For at most this many rows, ce_sum counts the targets while the rows' kernel still runs, which costs nothing.
constexpr int64 most_rows_counted_ahead = 1 << 17;

struct SumShared {
  float sum[sum_threads / lanes];
  int64 count[sum_threads / lanes];
  int64 before;  // value of Workspace::finished when this block was done
};
static_assert(sizeof(SumShared) <= 512, "what the generator asks for");

/// Sums over the block, in a fixed order; every thread of the first warp gets the result. All threads have passed a
/// barrier at its end.
template <class T>
CE_DEVICE T block_sum(T x, T (&shared)[sum_threads / lanes]) {
  constexpr int warps = sum_threads / lanes;
  x = warp_sum(x);
  if (lane_index() == 0) shared[warp_index()] = x;
  block_barrier();
  const T total = warp_sum<warps>(lane_index() < warps ? shared[lane_index()] : T(0));
  block_barrier();
  return total;
}

/// Two sums at once.
CE_DEVICE void block_sums(float& x, int64& count, SumShared& shared) {
  constexpr int warps = sum_threads / lanes;
  const int own_count = warp_sum(int(count));
  x = warp_sum(x);
  if (lane_index() == 0) {
    shared.sum[warp_index()] = x;
    shared.count[warp_index()] = own_count;
  }
  block_barrier();
  const bool is_one = lane_index() < warps;
  count = warp_sum<warps>(is_one ? int(shared.count[lane_index()]) : 0);
  x = warp_sum<warps>(is_one ? shared.sum[lane_index()] : 0.f);
  block_barrier();
}

/// Adds visit(row) up over this thread's rows of the block, several loads in flight at once.
template <class T, class Visit>
CE_DEVICE T over_rows(const Arguments& arguments, const Visit& visit) {
  T sum = 0;
#pragma unroll 1
  for (int64 first = block_index() * rows_per_sum; first < arguments.rows;
       first += block_count() * rows_per_sum)
#pragma unroll
    for (int i = 0; i < rows_per_sum / sum_threads; ++i) {
      const int64 row = first + i * sum_threads + thread_index();
      if (row < arguments.rows) sum += visit(row);
    }
  return sum;
}

/// This thread's number of rows that count in the block.
CE_DEVICE int64 count_rows(const Arguments& arguments) {
  return over_rows<int64>(arguments, [&](int64 row) { return int64(is_counted(arguments, row)); });
}

/// This thread's sum of the weights of their targets.
CE_DEVICE float weigh_rows(const Arguments& arguments) {
  return over_rows<float>(arguments, [&](int64 row) { return counted_weight(arguments, row); });
}

/// A block's results for the last block, in Workspace::losses behind the rows.
enum class Share { loss, z_loss, weight };

CE_DEVICE float* shares(const Arguments& arguments, Share share) {
  return arguments.workspace->losses + (problem::z_loss ? 2 : 1) * arguments.rows +
         int(share) * block_count();
}
/// Returns the block's results.
CE_DEVICE float leave(const Arguments& arguments, Share share, float value) {
  if (block_count() > 1 && thread_index() == 0) shares(arguments, share)[block_index()] = value;
  return value;
}

/// Whether this block is the last one to get here; then `count` becomes the sum over all blocks. Integers add up to the
/// same in any order, so one atomic addition to Workspace::finished serves for the rows and the blocks.
/// \tparam leaves  blocks have written results, which the threads of the last one must see
template <bool leaves>
CE_DEVICE bool last_block(Workspace& workspace, int64& count, SumShared& shared) {
  if (block_count() == 1) return true;
  constexpr int64 row = int64(1) << 20;  // larger than the number of blocks
  if (thread_index() == 0) {
    if constexpr (leaves) device_fence();
    shared.before = atomic_add(&workspace.finished, count * row + 1);
  }
  block_barrier();
  if (shared.before % row != block_count() - 1) return false;
  if constexpr (leaves) device_fence();
  count += shared.before / row;
  return true;
}

/// The sum of all blocks' results, in a fixed order, computed by the last block; thread 0 gets it.
/// \param own  this block's result
CE_DEVICE float total_of(const Arguments& arguments, Share share, float own,
                         float (&shared)[sum_threads / lanes]) {
  if (block_count() == 1) return own;
  float sum = 0;
#pragma unroll 1
  for (int64 block = thread_index(); block < block_count(); block += sum_threads)
    sum += load_element<Load::cg>(shares(arguments, share) + block);
  return block_sum(sum, shared);
}

}  // namespace ce

CE_KERNEL(ce_count, ce::sum_threads) {
  using namespace ce;
  step_release();  // the kernel of the rows may load and reduce meanwhile
  SumShared& shared = shared_memory<SumShared>();
  Workspace& workspace = *arguments.workspace;
  int64 count = block_sum(count_rows(arguments), shared.count);
  float weight = 0.f;
  if constexpr (problem::weights)
    weight = leave(arguments, Share::weight, block_sum(weigh_rows(arguments), shared.sum));
  if (!last_block<problem::weights>(workspace, count, shared)) return;
  if constexpr (problem::weights) weight = total_of(arguments, Share::weight, weight, shared.sum);
  if (thread_index() == 0) {
    workspace.count = count;
    workspace.weight = weight;
    workspace.finished = 0;
  }
}

CE_KERNEL(ce_sum, ce::sum_threads) {
  using namespace ce;
  constexpr bool counts = counts_rows && !problem::counts_first;  // otherwise ce_count has counted
  SumShared& shared = shared_memory<SumShared>();
  Workspace& workspace = *arguments.workspace;
  int64 count = 0;
  const auto sum_of = [&](const float* values) {
    return block_sum(over_rows<float>(arguments, [&](int64 row) { return values[row]; }), shared.sum);
  };
  const auto sum_and_count = [&](const float* losses) {
    float sum = over_rows<float>(arguments, [&](int64 row) {
      const float loss = losses[row];
      count += is_of_counted_row(loss);
      return loss;
    });
    block_sums(sum, count, shared);
    return sum;
  };

  // The targets are available before the losses. Reading many targets again would take longer than it saves.
  const bool counts_ahead = counts && (!losses_mark_counted || arguments.rows <= most_rows_counted_ahead);
  float z_loss = 0.f, weight = 0.f;
  if (counts_ahead) count = block_sum(count_rows(arguments), shared.count);
  if constexpr (counts && weighted_mean) weight = block_sum(weigh_rows(arguments), shared.sum);
  step_wait();
  float loss = leave(arguments, Share::loss,
                     counts && !counts_ahead ? sum_and_count(workspace.losses) : sum_of(workspace.losses));
  if constexpr (problem::z_loss)
    z_loss = leave(arguments, Share::z_loss, sum_of(workspace.losses + arguments.rows));
  if constexpr (counts && weighted_mean) leave(arguments, Share::weight, weight);
  if (!last_block<true>(workspace, count, shared)) return;

  loss = total_of(arguments, Share::loss, loss, shared.sum);
  if constexpr (problem::z_loss) z_loss = total_of(arguments, Share::z_loss, z_loss, shared.sum);
  Counted counted{count, weight};
  if constexpr (counts && weighted_mean)
    counted.weight = total_of(arguments, Share::weight, weight, shared.sum);
  else if constexpr (problem::counts_first)
    counted = {workspace.count, workspace.weight};
  if (thread_index() == 0) put_sums(arguments, loss, z_loss, counted);
}
