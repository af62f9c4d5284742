// Variant `persistent`: a row in the registers and the shared memory of persistent blocks.
//
// As many clusters as the GPU holds at once process one row after the other: each takes the next row when it is ready.
// A block's slice of a row arrives in chunks through a ring in its shared memory, which one warp keeps full. The others
// copy the first chunks to their registers, which frees the stages, and leave the rest in the ring:
//
//     loader    | chunks of row s + 1, into every stage that is free
//     workers   | chunks 0 1 to registers, 2 3 4 stay | statistics | outputs of 2 3 4 | outputs of 0 1 |   row s
//
// A multiprocessor has more registers than shared memory. So a row needs fewer blocks than in shared memory alone (one
// of 128256 16-bit columns fits a single block): fewer blocks wait for each other, and the rest of the ring loads
// ahead. In contrast to `pipeline`, nothing is reduced while outputs are written: the loads go on, but arithmetic and
// stores alternate. Needs sm_90. Moves 1 read + 1 write. Bound by the memory; in 16 bits with options by instructions.
//
// axis warps = 12 16 20
// axis vec = 4 8
// axis unroll = 1 2 3 4
// axis cluster = 1 2 3 4 6 8
// axis stages = 2 3 4 5 6
// axis hold = 4 6 8 9 12 15 16 18 20 24
// axis load = ca evict_last
// axis store = wb cg
#pragma once
#include "row/ring.cuh"

namespace ce {

constexpr RingRoles roles = persistent_roles(config::warps, config::unroll, config::hold);
using PersistentRing = Ring<roles>;
using Chunk = PersistentRing::Chunk;
constexpr int chunks = PersistentRing::chunks;
constexpr int team_warps = roles.team_warps, held_chunks = roles.held_chunks;

/// A thread's part of a chunk in registers.
struct HeldChunk {
  Elements<problem::Element, config::vec> of[config::unroll];
};

/// A row, as a thread of one of its blocks sees it.
struct Chunks {
  const PersistentRing::Block& block;
  const PersistentRing::Slice& slice;
  int thread;
  float padding;

  CE_DEVICE Chunk tile(int chunk) const {
    return {slice.partition, slice.start_of(chunk), slice.end, thread};
  }
  CE_DEVICE Chunk tile(int chunk, const HeldChunk& held) const {
    Chunk result = tile(chunk);
#pragma unroll
    for (int i = 0; i < config::unroll; ++i) result.elements[i] = held.of[i];
    return result;
  }
  CE_DEVICE HeldChunk read(int chunk, const PersistentRing::Stage& stage) const {
    Chunk from = tile(chunk);
    block.fill(from, stage, slice.start_of(chunk), padding);
    HeldChunk held;
#pragma unroll
    for (int i = 0; i < config::unroll; ++i) held.of[i] = from.elements[i];
    return held;
  }
  CE_DEVICE HeldChunk read_when_filled(int chunk, const PersistentRing::Stage& stage) const {
    PersistentRing::wait(block.shared.full[stage.index], stage.parity);
    return read(chunk, stage);
  }
};

CE_DEVICE void work(const PersistentRing::Block& block, int thread) {
  const int warp = block.rank * team_warps + thread / lanes;
  int result_writer =
      0;  // the warp that stores the row's results; warps alternate, since it falls behind by that
  PersistentRing::Stage stage;
  PersistentRing::RowQueue queue;
  PersistentRing::ClusterReduction reduction;
  Operation::RowPrefetch prefetch(block.arguments, block.existing(block.cluster));
  prefetch.look_up(block.arguments);
  Operation::BatchScalars batch;
  const Operation::KernelScalars kernel_scalars(block.arguments);
  bool is_first = true;
  for (int64 index = block.cluster, next = 0; block.exists(index); index = next) {
    next = queue.pop(block);
    const auto slice = block.slice_of(index);
    Operation operation(block.arguments, index, warp == result_writer && lane_index() == 0, prefetch,
                        kernel_scalars);
    result_writer = result_writer + 1 < config::cluster * team_warps ? result_writer + 1 : 0;
    Edge<problem::Element> edge{block.edge_column(slice, thread)};
    edge.template read<Load::ca>(slice.row, operation.padding());
    float value = 0.f;
    const bool constant = operation.constant(value);
    const auto target_logit = constant ? problem::Element{} : operation.target_logit(slice.row);
    prefetch = Operation::RowPrefetch(block.arguments, block.existing(next));
    Operation::Stats stats;
    if constexpr (!Partition::whole)
      if (!constant) extend(operation, stats, edge);
    block.shared.weights.attach(operation, block.rank);

    const Chunks all{block, slice, thread, operation.padding()};
    HeldChunk held[held_chunks];
    HeldChunk ahead = all.read_when_filled(0, stage);  // the next chunk, while one is reduced
#pragma unroll
    for (int chunk = 0; chunk < held_chunks; ++chunk) {
      held[chunk] = ahead;
      const auto done = stage;
      stage.advance();
      if (chunk + 1 < chunks) ahead = all.read_when_filled(chunk + 1, stage);
      block.release(done);
      Chunk tile = all.tile(chunk, held[chunk]);
      if (!constant) extend(operation, stats, tile);
    }
    const auto first_left = stage;
#pragma unroll 1
    for (int chunk = held_chunks; chunk < chunks; ++chunk) {
      Chunk tile = all.tile(chunk, ahead);
      stage.advance();
      if (chunk + 1 < chunks) ahead = all.read_when_filled(chunk + 1, stage);
      if (!constant) extend(operation, stats, tile);
    }
    reduction.publish(block, warp, warp_merge(stats, operation.exponent_factor()), target_logit);
    if (is_first) batch = Operation::BatchScalars(block.arguments);  // late: no wait for ce_count before this
    is_first = false;
    if (!constant) operation.prepare(batch);
    reduction.receive(block, operation, constant);
    reduction.advance();

    const auto write = [&](const Chunk& tile) {
      if (constant)
        tile.template write_value<config::store>(slice.row, value);
      else
        write_outputs<config::store>(operation, slice.row, tile);
    };
    stage = first_left;
    if (held_chunks < chunks) ahead = all.read(held_chunks, stage);
#pragma unroll 1
    for (int chunk = held_chunks; chunk < chunks; ++chunk) {
      const Chunk tile = all.tile(chunk, ahead);
      const auto done = stage;
      stage.advance();
      if (chunk + 1 < chunks) ahead = all.read(chunk + 1, stage);
      block.release(done);
      write(tile);
    }
#pragma unroll
    for (int chunk = 0; chunk < held_chunks; ++chunk) write(all.tile(chunk, held[chunk]));
    block.shared.weights.detach(operation);
    prefetch.look_up(block.arguments);
    write_edge<config::store>(operation, slice.row, edge, constant, value);
    operation.store_row_results();  // late: it would delay the chunks
    if (constant) continue;
    correct_target<config::store, PersistentRing::team>(operation, slice.row, slice.partition, slice.begin,
                                                        slice.end, thread, edge);
  }
}

}  // namespace ce

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  PersistentRing::run(arguments, [](const PersistentRing::Block& block, int thread) { work(block, thread); });
}
