// Variant `merge`: the results of rows whose classes are spread over ranks.
//
// Each thread reads the statistics of all ranks for one row (operations/shard.cuh), merges them in the order of the
// ranks, and writes the row's losses and other outputs of the call.
//
// Moves some 12 to 40 bytes a row and rank, and is bound by the latency of its launch.
//
// axis warps = 1 2 4 8
#pragma once
#include "row/tile.cuh"

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  const int64 row = block_index() * (lanes * config::warps) + thread_index();
  const bool exists = row < arguments.rows;
  Operation operation(arguments, exists ? row : arguments.rows - 1, exists);
  float value;
  operation.constant(value);
  operation.prepare();
  operation.finalize({});
  operation.store_row_results();
}
