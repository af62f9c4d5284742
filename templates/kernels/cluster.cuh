// Variant `cluster`: the row in the shared memory of the blocks of a cluster.
//
// The blocks of a cluster (1 to 8, or 16 where 8 cannot hold the row) share a row: each fetches its slice with bulk copies,
// chunk by chunk, into its shared memory, and reads it from there twice, for the statistics and for the outputs.
//
//     bulk loads of all chunks -> wait for a chunk, add it, ... -> statistics of the block, to all blocks of the cluster
//                                                              -> outputs from shared memory
//
// The logits are read from memory exactly once at any width. A slice is small, so several blocks live on a
// multiprocessor, each in another phase: while some wait for their chunks, others reduce or store. Needs
// sm_90. Wins for rows too wide for the registers of one block.
//
// axis warps = 4 8 16
// axis vec = 4 8
// axis tile = 1024 2048 4096 8192
// axis cluster = 1 2 3 4 6 8 16
// axis load = ca evict_last
// axis store = wb cg
#pragma once
#include "row/block_row.cuh"
#include "row/cluster_merge.cuh"
#include "row/tile.cuh"
#include "shared_layouts.cuh"

namespace ce {

using Partition = RowPartition<problem::Element, problem::columns, config::vec, problem::aligned>;

constexpr int chunk_vectors = config::tile / config::vec;
constexpr ClusterLayout layout{problem::inputs,
                               Partition::shape.slice_vectors(config::cluster),
                               chunk_vectors,
                               config::warps,
                               config::cluster,
                               int(sizeof(Operation::Stats)),
                               ClusterMerge<Operation::Stats, config::cluster>::RowMessage::bytes};
constexpr int slice_vectors = layout.slice_vectors, chunks = layout.chunks();

struct Shared {
  Words<4> row[problem::inputs][slice_vectors];
  Mbarrier barriers[chunks];
  Operation::Stats warp_stats[config::warps];
  ClusterMerge<Operation::Stats, config::cluster> over_cluster;
};
static_assert(sizeof(Shared) == layout.bytes() && layout.bytes() <= config::shared_bytes);

}  // namespace ce

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  using Element = problem::Element;
  constexpr int threads = lanes * config::warps;
  using Chunk = Tile<Element, Partition, chunk_vectors / threads, threads, false>;

  Shared& shared = shared_memory<Shared>();
  const int rank = config::cluster == 1 ? 0 : cluster_rank();
  const Row<Element> row(arguments, block_index() / config::cluster);
  const Partition partition(row.in[0]);
  // The slice of this block: vectors [begin, end); the first vector of the first block may begin before the row.
  const int begin = rank * slice_vectors,
            end = begin + slice_vectors < partition.end ? begin + slice_vectors : partition.end;
  Operation operation(arguments, block_index() / config::cluster, rank == 0 && thread_index() == 0);
  Edge<Element> edge{rank == 0 ? partition.edge_column(thread_index()) : -1};

  if (float value; operation.constant(value)) {
    operation.store_row_results();
    if constexpr (Operation::has_output)
      fill_row<config::store, threads>(row, partition, begin, end, thread_index(), edge.column, value);
    return;
  }

  if (thread_index() == 0) {
    shared.over_cluster.init();
    for (int chunk = 0; chunk < chunks; ++chunk) mbarrier_init(shared.barriers[chunk], problem::inputs);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int at = begin + chunk * chunk_vectors, first = at > partition.first ? at : partition.first;
      const int last = at + chunk_vectors < end ? at + chunk_vectors : end;
      if (first < last)
        for (int i = 0; i < problem::inputs; ++i)
          bulk_load<config::load>(&shared.row[i][first - begin], row.in[i] + partition.column_of(first),
                                  int(sizeof(Words<4>)) * (last - first), shared.barriers[chunk]);
    }
  }
  edge.template read<Load::ca>(row, operation.padding());
  operation.prepare();
  operation.set_target(operation.target_logit(row));
  block_barrier();
  if constexpr (config::cluster > 1) cluster_arrive();  // waited for before any block writes to another

  const auto read = [&](int v) {
    Elements<Element, config::vec> elements;
#pragma unroll
    for (int i = 0; i < problem::inputs; ++i) elements.of_input[i] = {shared.row[i][v - begin]};
    return elements;
  };
  Operation::Stats stats;
  if constexpr (!Partition::whole) extend(operation, stats, edge);
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int at = begin + chunk * chunk_vectors;
    if (at >= end) break;
    mbarrier_wait(shared.barriers[chunk]);
    Chunk tile(partition, at, end, thread_index());
    tile.fill_mostly_full(operation.padding(), read);
    extend(operation, stats, tile);
    if constexpr (Operation::caps && Operation::has_output)  // used later by the same thread
      tile.each_inside([&](int i, int v) { shared.row[0][v - begin] = tile.elements[i].of_input[0].data; });
  }
  stats = block_merge(stats, shared.warp_stats, operation.exponent_factor());
  if constexpr (config::cluster > 1) cluster_wait();
  operation.finalize(shared.over_cluster.merge(stats, operation.exponent_factor()));
  operation.store_row_results();

  if constexpr (Operation::has_output) {
#pragma unroll 1
    for (int at = begin; at < end; at += chunk_vectors) {
      Chunk tile(partition, at, end, thread_index());
      tile.fill_mostly_full(operation.padding(), read);
      write_outputs<config::store>(operation, row, tile);
    }
    write_edge<config::store>(operation, row, edge);
    correct_target<config::store, threads>(operation, row, partition, begin, end, thread_index(), edge);
  }
}
