// Variant `persistent_reduce`: a loss alone, by blocks that stay.
//
// As many blocks as the GPU holds at once, one to three on each multiprocessor, take one row after the other, whoever
// is ready the next one. Rows flow through a ring in shared memory, which one warp keeps full and the others empty; of
// a row nothing stays, so any width fits. Warps do not wait for each other at the end of a row: each leaves its part,
// another one in turn joins them and records the row, and falls behind by that.
//
//     loader    | chunks of row s, then those of row s + 1, ...
//     workers   | statistics of row s                 | of row s + 1
//               |                                     | one of them: join, loss of row s
//
// Against `two_pass`, memory never idles at the end of a row, and at the end of all rows each multiprocessor has one
// row left to finish, not eight. Needs sm_90. Moves 1 read. Bound by the memory.
//
// axis warps = 9 13 17
// axis vec = 4 8
// axis unroll = 1 2 4
// axis cluster = 1
// axis stages = 3 4 6 8 12
// axis load = ca last
#pragma once
#include "device/device.cuh"

namespace ce {

constexpr int team_warps = config::warps - 1;
constexpr int readers = lanes * team_warps;
constexpr int chunk_vectors = config::unroll * readers;
constexpr int held_chunks = 0x7fffffff;  // slots are free as soon as they are read
constexpr bool settles_apart = false;

}  // namespace ce

#include "row/ring.cuh"

namespace ce {

// Nobody but who records a row waits for the others, who may be as far ahead as the ring lets them: not a row and a
// half, after which they would write over messages that have not been read. Another block's would not have to wait.
static_assert(config::cluster == 1 && !Operation::has_output);

}  // namespace ce

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  take_rows(arguments, [](const Site& site, int thread) {
    int recorder = 0;  // all in turn
    reduce_rows(
        site, thread, [&] { return thread / lanes == recorder; },
        [&](Operation& operation, const Exchange& exchange, bool constant) {
          if (thread / lanes == recorder) {
            if (!constant) {
              operation.prepare();
              exchange.receive(site, operation, constant);
            }
            operation.record();
          }
          recorder = recorder + 1 < team_warps ? recorder + 1 : 0;
        });
  });
}
