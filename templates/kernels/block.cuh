// Variant `block`: the row in the registers of one block.
//
// One block of `warps` warps per row. Every thread loads all of its vectors at once, so the whole row is in
// flight, and keeps them in registers: the logits are read from memory exactly once and the outputs written
// exactly once.
//
//     load all vectors  ->  maximum and sum of the thread, the warp, the block  ->  outputs, from the
//     same registers
//
// Wins wherever the row fits: while one block reduces, the others on the same multiprocessor load and store.
// At 1024 threads with little room for a second block (f32 beyond 16384 columns) the phases stop overlapping.
//
// axis warps = 1 2 4 8 16 32
// axis vec = 1 2 4 8
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
  constexpr int threads = lanes * config::warps;
  constexpr int per_thread = (Partition::most_vectors + threads - 1) / threads;
  static_assert(sizeof(Shared) <= config::shared_bytes);

  const Row<Element> row(arguments, block_index());
  const Partition partition(row.in[0]);
  Operation operation(arguments, block_index(), thread_index() == 0);
  // The loads start before anything about the row is known: ignored rows are read in vain.
  Tile<Element, Partition, per_thread, threads, true> tile(partition, 0, partition.end, thread_index());
  tile.fill(operation.padding(),
            [&](int v) { return row.template read<config::load, config::vec>(partition.column_of(v)); });
  Edge<Element> edge{partition.edge_column(thread_index())};
  edge.template read<config::load>(row, operation.padding());

  if (float value; operation.constant(value)) {
    operation.store_row_results();
    if constexpr (Operation::has_output)
      fill_row<config::store, threads>(row, partition, 0, partition.end, thread_index(), edge.column, value);
    return;
  }
  operation.prepare();
  operation.set_target(operation.target_logit(row));
  Operation::Stats stats;
  if constexpr (Operation::reduces) {
    rescale_to(operation, stats, tile);
    if constexpr (!Partition::whole) rescale_to(operation, stats, edge);
    rescale_warp(stats, operation.exponent_factor());
    operation.add(stats, tile);
    if constexpr (!Partition::whole) operation.add(stats, edge);
    stats = block_merge<config::warps, true>(stats, shared_memory<Shared>().warp_stats,
                                             operation.exponent_factor());
  }
  operation.finalize(stats);
  operation.store_row_results();

  if constexpr (Operation::has_output) {
    write_outputs<config::store>(operation, row, tile);
    write_edge<config::store>(operation, row, edge);
    correct_target<config::store, threads>(operation, row, partition, 0, partition.end, thread_index(), edge);
  }
}
