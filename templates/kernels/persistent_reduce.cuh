// Variant `persistent_reduce`: a loss alone, by blocks that stay.
//
// As many blocks as the GPU holds at once, one to three on each multiprocessor, take one row after the other:
// each takes the next one when it is ready. Rows flow through a ring in shared memory, which one warp keeps full and the others empty; of
// a row nothing stays, so any width fits. Warps do not wait for each other at the end of a row: each leaves its part,
// another one in turn merges them and records the row, and falls behind by that.
//
//     loader    | chunks of row s, then those of row s + 1, ...
//     workers   | statistics of row s                 | of row s + 1
//               |                                     | one of them: merge, loss of row s
//
// Against `two_pass`, memory never idles at the end of a row, and at the end of all rows each multiprocessor has one
// row left to finish, not eight. Needs sm_90. Moves 1 read. Bound by the memory.
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

// Only the warp that stores a row's results waits for the others, who may be as far ahead as the ring lets them: less than
// a row and a half, after which they would write over messages that have not been read. Another block's would not wait.
static_assert(config::cluster == 1 && !Operation::has_output);

}  // namespace ce

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  ReduceRing::run(arguments, [](const ReduceRing::Block& block, int thread) {
    int result_writer = 0;  // all warps in turn
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
