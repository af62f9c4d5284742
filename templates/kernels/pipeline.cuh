// Variant `pipeline`: persistent blocks or clusters; one warp loads, some reduce, some write.
//
// As many clusters as the GPU holds at once process one row after the other: each takes the next row when it is ready.
// A block's slice of a row flows through a ring of chunks in its shared memory (ring.cuh), and through three roles that
// never wait for each other unless the ring is full or empty:
//
//     loader    | row s, chunk 3      bulk loads into stages that reducers and writers have read
//     reducers  | row s, chunk 1      read a chunk as it lands; after the last one publish their statistics to all blocks
//     writers   | row s - 1, chunk 2  have the statistics of all blocks: outputs
//
// So a row is reduced while the one before it is written, and memory reads and writes overlap at any width.
// A cluster of 16 leaves multiprocessors idle, and is for rows that 8 blocks cannot hold. Needs sm_90. Moves 1
// read + 1 write. Bound by the memory; in 16 bits the exponentials of reducers and writers come next. A soft cap and
// weights of all classes are left to pipeline_decoupled.
//
// A chunk has `tile` elements; the ring holds the chunks of one slice and `stages` more.
//
// To understand it with cross entropy, read after this file row/ring.cuh, row/message.cuh, row/tile.cuh, row/stats.cuh,
// row/exponentials.cuh, row/operation.cuh (the contract) and operations/cross_entropy.cuh. The heads of the other
// includes are enough: device/device.cuh lists the instructions, row/row.cuh has the picture of a row, the layouts are
// arithmetic that the generator shares, and the rest are options.
//
// axis warps = 17 21 25
// axis vec = 4 8
// axis tile = 2048 3072 4096 5120 6144 8192 9216 10240 12288
// axis cluster = 1 2 3 4 6 8 16
// axis stages = 1 2 3 4 5 6 8
// axis load = ca evict_last
// axis store = wb cg
#pragma once
#include "row/ring.cuh"

namespace ce {

using PipelineRing = Ring<pipeline_roles(config::warps, config::tile / config::vec)>;

/// Writes the outputs of all rows, by the second team.
CE_DEVICE void write_rows(const PipelineRing::Block& block, int thread) {
  constexpr int team = PipelineRing::team, team_warps = team / lanes;
  const int warp = block.rank * team_warps + thread / lanes;
  // The warp that stores the row's losses and the like. Warps alternate, since storing delays the one that does it.
  int result_writer = 0;
  PipelineRing::Stage stage;
  PipelineRing::RowQueue queue;
  PipelineRing::ClusterReduction reduction;
  Operation::RowPrefetch prefetch(block.arguments, block.existing(block.cluster));
  prefetch.look_up(block.arguments);
  const Operation::BatchScalars batch(block.arguments);
  const Operation::KernelScalars kernel_scalars(block.arguments);
  for (int64 index = block.cluster, next = 0; block.exists(index); index = next) {
    next = queue.pop(block);
    const auto slice = block.slice_of(index);
    Operation operation(block.arguments, index, warp == result_writer && lane_index() == 0, prefetch,
                        kernel_scalars);
    result_writer = result_writer + 1 < config::cluster * team_warps ? result_writer + 1 : 0;
    Edge<problem::Element> edge{block.edge_column(slice, thread)};
    edge.template read<Load::ca>(slice.row, operation.padding());
    float value = 0.f;
    const bool constant = operation.constant(value);  // an ignored row: all outputs are `value`
    if (!constant) operation.prepare(batch);
    prefetch = Operation::RowPrefetch(block.arguments, block.existing(next));
    reduction.receive(block, operation, constant);
    reduction.advance();
#pragma unroll 1
    for (int chunk = 0; chunk < PipelineRing::chunks; ++chunk, stage.advance()) {
      PipelineRing::wait(block.shared.full[stage.index], stage.parity);
      PipelineRing::Chunk tile(slice.partition, slice.start_of(chunk), slice.end, thread);
      block.fill(tile, stage, slice.start_of(chunk), operation.padding());
      block.release(stage);
      if (constant)
        tile.template write_value<config::store>(slice.row, value);
      else
        write_outputs<config::store>(operation, slice.row, tile);
    }
    prefetch.look_up(block.arguments);
    write_edge<config::store>(operation, slice.row, edge, constant, value);
    operation.store_row_results();  // not earlier: it would delay the chunks
    if (constant) continue;
    // write_outputs() treats the target as any class; the exact output of its column replaces that.
    correct_target<config::store, team>(operation, slice.row, slice.partition, slice.begin, slice.end, thread,
                                        edge);
  }
}

}  // namespace ce

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  PipelineRing::run(arguments, [](const PipelineRing::Block& block, int thread) {
    if (thread < PipelineRing::team)
      PipelineRing::reduce_rows(block, thread);
    else
      write_rows(block, thread - PipelineRing::team);
  });
}
