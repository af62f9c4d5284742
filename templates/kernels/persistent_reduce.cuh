// Variant `persistent_reduce`: a loss alone, by persistent blocks.
//
// As many blocks as the GPU holds at once, one to three on each multiprocessor, process one row after the other: each
// takes the next row when it is ready. Rows flow through a ring in shared memory, which one warp keeps full and the
// others empty; no row is kept, so any width fits. Warps do not wait for each other at the end of a row: each publishes
// its statistics, one warp (they alternate) merges them and stores the row's results, and falls behind by that.
//
//     loader    | chunks of row s, then those of row s + 1, ...
//     workers   | statistics of row s                 | of row s + 1
//               |                                     | one of them: merge, loss of row s
//
// In contrast to `two_pass`, memory never idles at the end of a row, and at the end of all rows each multiprocessor has
// one row left to finish, not eight. Needs sm_90. Moves 1 read. Bound by the memory.
//
// axis warps = 9 13 17
// axis vec = 4 8
// axis unroll = 1 2 4
// axis cluster = 1
// axis stages = 3 4 6 8 12
// axis load = ca evict_last
#pragma once
#include "row/ring.cuh"

namespace ce {

using ReduceRing = Ring<persistent_reduce_roles(config::warps, config::unroll)>;

// Only the warp that stores a row's results waits for the others. Others may be ahead by at most the ring: less than a
// row and a half, after which they would overwrite unread messages. In a cluster another block's warps would not wait.
static_assert(config::cluster == 1 && !Operation::has_output);

}  // namespace ce

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  ReduceRing::run(arguments, [](const ReduceRing::Block& block, int thread) {
    int result_writer = 0;  // all warps alternate
    ReduceRing::reduce_rows(
        block, thread, [&] { return thread / lanes == result_writer; },
        [&](Operation& operation, const ReduceRing::ClusterReduction& reduction, bool constant) {
          if (thread / lanes == result_writer) {
            if (!constant) {
              operation.prepare();
              reduction.receive(block, operation, constant);
            }
            operation.store_row_results();
          }
          result_writer = result_writer + 1 < config::warps - 1 ? result_writer + 1 : 0;
        });
  });
}
