// Variant `two_pass`: several passes over the row in tiles, with the online softmax recurrence.
//
// One block of `warps` warps per row. The first pass reads tile after tile and keeps a running maximum and
// sum in each thread; nothing of the row stays on chip, so any width fits. The second pass reads the row
// again, the last tile first, because that is the one that L2 still holds, and writes the outputs. A loss
// alone needs no second pass.
//
//     for each tile: load its vectors, add them to (max, sum)  ->  block
//                                                                 ->  for each tile, backwards: outputs
//
// Moves 2 reads + 1 write where the block variant moves 1 + 1, less what L2 gives back. Wins where rows are
// too wide for registers, and for losses without gradient.
//
// axis warps = 1 2 4 8 16 32
// axis vec = 1 2 4 8
// axis tile = 256 512 1024 2048 4096 8192
// axis load = ca cg cs evict_last
// axis store = wb cg cs wt
#pragma once
#include "row/block_row.cuh"
#include "row/tile.cuh"

namespace ce {

struct Shared {
  Operation::Stats warp_stats[config::warps];
};

}  // namespace ce

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  using Element = problem::Element;
  using Partition = RowPartition<Element, problem::columns, config::vec, problem::aligned>;
  constexpr int threads = lanes * config::warps, step = config::tile / config::vec;
  using RowTile = Tile<Element, Partition, step / threads, threads, false>;
  static_assert(sizeof(Shared) <= config::shared_bytes);

  const Row<Element> row(arguments, block_index());
  const Partition partition(row.in[0]);
  Operation operation(arguments, block_index(), thread_index() == 0);
  Edge<Element> edge{partition.edge_column(thread_index())};
  if (float value; operation.constant(value)) {
    operation.store_row_results();
    if constexpr (Operation::has_output)
      fill_row<config::store, threads>(row, partition, 0, partition.end, thread_index(), edge.column, value);
    return;
  }
  edge.template read<config::load>(row, operation.padding());
  const auto read = [&](int v) {
    return row.template read<config::load, config::vec>(partition.column_of(v));
  };

  operation.prepare();
  operation.set_target(operation.target_logit(row));
  Operation::Stats stats;
  if constexpr (Operation::reduces) {
    if constexpr (!Partition::whole) extend(operation, stats, edge);
#pragma unroll 1
    for (int begin = 0; begin < partition.end; begin += step) {
      RowTile tile(partition, begin, partition.end, thread_index());
      tile.fill_mostly_full(operation.padding(), read);
      extend(operation, stats, tile);
    }
    stats = block_merge(stats, shared_memory<Shared>().warp_stats, operation.exponent_factor());
  }
  operation.finalize(stats);
  operation.store_row_results();

  if constexpr (Operation::has_output) {
    for (int begin = (partition.end - 1) / step * step; begin >= 0; begin -= step) {
      RowTile tile(partition, begin, partition.end, thread_index());
      tile.fill_mostly_full(operation.padding(), read);
      cap(operation, tile);
      write_outputs<config::store>(operation, row, tile);
    }
    write_edge<config::store>(operation, row, edge);
    correct_target<config::store, threads>(operation, row, partition, 0, partition.end, thread_index(), edge);
  }
}
