// Variant `split`: few rows, each over many blocks.
//
// With fewer rows than multiprocessors, one block for each row leaves most of the GPU idle. Here `split` blocks share a
// row, in two launches: ce_partial writes the statistics of each block's slice to memory, ce_row merges those of its
// row and writes its slice. The second launch starts while the first one runs (sm_90) and finds the row in L2.
//
//     ce_partial:  | slice 0 | slice 1 | ... |  ->  partial statistics [rows, split]
//     ce_row:      partial statistics -> statistics of the row; slice from L2 -> outputs
//
// Moves 1 read + 1 write through the memory as long as L2 holds the rows. Bound by the latency of two
// launches.
//
// axis warps = 4 8 16
// axis vec = 1 2 4 8
// axis split = 2 4 8 16 32 64 128
// axis load = ca cg
// axis store = wb cg
#pragma once
#include "row/block_row.cuh"
#include "row/tile.cuh"

namespace ce {

using Partition = RowPartition<problem::Element, problem::columns, config::vec, problem::aligned>;

constexpr int threads = lanes * config::warps;
constexpr int unroll = 4;
constexpr int step = unroll * threads;  // vectors
constexpr int slice_vectors = Partition::shape.slice_vectors(config::split);

struct Shared {
  Operation::Stats warp_stats[config::warps];
};

/// A block's results of the first launch, for the second.
struct Partial {
  Operation::Stats stats;
  problem::Element target_logit;  // read before outputs overwrite it
};
static_assert(sizeof(Partial) <= split_partial_bytes);

CE_DEVICE Partial& partial_of(const Arguments& arguments, int64 block) {
  return *reinterpret_cast<Partial*>(static_cast<char*>(arguments.partials) + block * split_partial_bytes);
}

using SliceTile = Tile<problem::Element, Partition, unroll, threads, false>;

/// Visits the tiles of this block's slice of the row.
template <class Visit>
CE_DEVICE void over_slice(const Row<problem::Element>& row, const Partition& partition, int begin, int end,
                          float padding, const Visit& visit) {
#pragma unroll 1
  for (int at = begin; at < end; at += step) {
    SliceTile tile(partition, at, end, thread_index());
    tile.fill(padding,
              [&](int v) { return row.template read<config::load, config::vec>(partition.column_of(v)); });
    visit(tile);
  }
}

}  // namespace ce

CE_KERNEL(ce_partial, 32 * ce::config::warps) {
  using namespace ce;
  step_release();
  static_assert(sizeof(Shared) <= config::shared_bytes);
  const int64 index = block_index() / config::split;
  const int rank = int(block_index() % config::split), begin = rank * slice_vectors;
  const Row<problem::Element> row(arguments, index);
  const Partition partition(row.in[0]);
  const int end = begin + slice_vectors < partition.end ? begin + slice_vectors : partition.end;
  Operation operation(arguments, index, false);
  Edge<problem::Element> edge{rank == 0 ? partition.edge_column(thread_index()) : -1};
  edge.template read<config::load>(row, operation.padding());
  float value;
  operation.constant(value);

  Operation::Stats stats;
  if constexpr (Operation::Stats::exponentials || Operation::Stats::dots) {
    if constexpr (!Partition::whole) extend(operation, stats, edge);
    over_slice(row, partition, begin, end, operation.padding(),
               [&](SliceTile& tile) { extend(operation, stats, tile); });
    stats = block_merge(stats, shared_memory<Shared>().warp_stats, operation.exponent_factor());
  }
  step_wait();  // no kernel of a call ends before earlier ones
  if (thread_index() == 0) {
    Partial& partial = partial_of(arguments, block_index());
    partial.stats.assign(stats);
    partial.target_logit = operation.target_logit(row);
  }
}

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  using Element = problem::Element;
  const int64 index = block_index() / config::split;
  const int rank = int(block_index() % config::split), begin = rank * slice_vectors;
  const Row<Element> row(arguments, index);
  const Partition partition(row.in[0]);
  const int end = begin + slice_vectors < partition.end ? begin + slice_vectors : partition.end;
  Operation operation(arguments, index, rank == 0 && thread_index() == 0);
  Edge<Element> edge{rank == 0 ? partition.edge_column(thread_index()) : -1};
  step_wait();
  if (float value; operation.constant(value)) {
    operation.store_row_results();
    if constexpr (Operation::has_output)
      fill_row<config::store, threads>(row, partition, begin, end, thread_index(), edge.column, value);
    return;
  }
  if (!Operation::has_output && rank > 0) return;

  edge.template read<config::load>(row, operation.padding());
  Operation::Stats stats;
#pragma unroll
  for (int i = 0; i < (config::split + lanes - 1) / lanes; ++i) {
    const int other = i * lanes + lane_index();
    if (other < config::split)
      stats.merge(partial_of(arguments, index * config::split + other).stats, operation.exponent_factor());
  }
  operation.prepare();
  operation.set_target(partial_of(arguments, index * config::split).target_logit);
  operation.finalize(warp_merge(stats, operation.exponent_factor()));
  operation.store_row_results();
  if constexpr (Operation::has_output) {
    over_slice(row, partition, begin, end, operation.padding(), [&](SliceTile& tile) {
      cap(operation, tile);
      write_outputs<config::store>(operation, row, tile);
    });
    cap(operation, edge);
    write_edge<config::store>(operation, row, edge);
    correct_target<config::store, threads>(operation, row, partition, begin, end, thread_index(), edge);
  }
}
