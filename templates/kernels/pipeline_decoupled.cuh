// Variant `pipeline_decoupled`: as `pipeline`, with a ring for several rows, and a warp that finalizes them.
//
// For cross entropy with options that take much arithmetic, or much shared memory for the weights of all classes, so
// that the work between the last chunk of a row and its first output delays `pipeline`:
//
//     loader    | row s + 2    bulk loads into stages that reducers and writers have read
//     reducers  | row s + 1    read a chunk as it lands; after the last one publish their statistics
//     finalizer | row s        merges the statistics of all blocks: loss of the row, factors of its outputs
//     writers   | row s        outputs; take `hold` vectors a thread from the ring while they wait for the finalizer
//
// In `pipeline` each writing warp merges the statistics and finalizes the row, and the loader is less than two rows
// ahead. Here one warp of the block finalizes, and the ring, together with the registers of the writers, holds as many
// rows as fit: small slices, in large clusters, are no obstacle. In f32 there may be more reducers than writers, and
// there may be more writers, which then hold more of the next row. Needs sm_90. Moves 1 read + 1 write. Bound by the
// memory; with a soft cap in 16 bits by instructions.
//
// axis warps = 18 22 23 26 30
// axis reducers = 8 12 14 16
// axis vec = 4 8
// axis tile = 3072 4096 5376 6144 8192 9216 10752
// axis cluster = 1 2 3 4 8 16
// axis stages = 1 2 3 4 5 6 7 8 9 10
// axis hold = 2 3 4 6 8
// axis load = evict_last
// axis store = wb
#pragma once
#include "operations/finalized_row.cuh"
#include "row/marked_chunks.cuh"

namespace ce {

constexpr RingRoles roles = pipeline_decoupled_roles(
    config::warps, config::reducers, config::tile / config::vec, config::hold, Operation::caps);
constexpr int team = lanes * roles.team_warps, writers = roles.readers - team,
              held_chunks = roles.held_chunks;
using Marks = MarksOf<Operation::some_simple>::Type;

/// Finalized rows for the writers of the block.
template <int slots>
struct FinalizedRows {
  struct RowForWriters {
    FinalizedRow<Operation> row;
    float value;  ///< value of all outputs, if the row is constant
    bool constant;
    Marks not_simple;  ///< marked chunks of this block's slice
  };
  static_assert(sizeof(RowForWriters) + sizeof(Mbarrier) <= finalized_bytes(Operation::entropy_gradient));
  RowForWriters rows_for_writers[slots];
  Mbarrier finalized[slots];

  CE_DEVICE void init() {
    for (int slot = 0; slot < slots; ++slot) mbarrier_init(finalized[slot], lanes);
  }
};

using DecoupledRing = Ring<roles, FinalizedRows, Marks>;
using Slice = DecoupledRing::Slice;
using Reduction = DecoupledRing::ClusterReduction;
constexpr int chunks = DecoupledRing::chunks;

/// Whether all blocks have published the reduction's next row, as far as one lane can see.
CE_DEVICE bool is_published(const DecoupledRing::Block& block, const Reduction& reduction) {
  return any_lane(mbarrier_test(block.shared.published[reduction.slot], reduction.parity));
}
CE_DEVICE void await_published(const DecoupledRing::Block& block, const Reduction& reduction) {
  DecoupledRing::wait(block.shared.published[reduction.slot], reduction.parity);
}
/// The marks of this block's chunks only, for a row that was waited for.
CE_DEVICE Marks marks_of(const DecoupledRing::Block& block, const Reduction& reduction) {
  Marks marks;
#pragma unroll
  for (int i = 0; i < DecoupledRing::messages_a_lane; ++i) {
    Operation::Stats stats;
    problem::Element target_logit;
    Marks marked;
    const int of = i * lanes + lane_index();
    if (of >= DecoupledRing::messages || of / roles.team_warps != block.rank) continue;
    block.shared.about_row[reduction.slot][of].read(stats, target_logit, marked);
    marks.merge(marked);
  }
  return marks.of_warp();
}

/// Sends statistics of rows to other ranks: as soon as the cluster has reduced a row, while earlier rows are still
/// awaited.
template <bool used>
class RowSender {
 public:
  CE_DEVICE RowSender(const DecoupledRing::Block& block, const Operation::KernelScalars& scalars)
      : block_(block),
        kernel_scalars_(scalars),
        index_(queue_.first(block)),
        prefetch_(block.arguments, block.existing(index_)),
        lag_(lag_of(block)) {}

  /// Sends all reduced rows; waits for the next one.
  CE_DEVICE void send() {
    for (; block_.exists(index_) && (ahead_ == 0 || is_published(block_, reduction_)); ++ahead_) {
      await_published(block_, reduction_);
      if (lag_ != 0 && lane_index() == sent_ % lanes) sent_at_ = uint32(nanoseconds());
      ++sent_;
      Operation operation(block_.arguments, index_, false, prefetch_, kernel_scalars_);
      index_ = queue_.pop(block_);
      prefetch_ = Operation::RowPrefetch(block_.arguments, block_.existing(index_));
      float value = 0.f;
      if (block_.rank == sender_ && !operation.constant(value)) {
        Marks marks;
        operation.send_statistics(reduction_.read(block_, operation, marks));
      }
      reduction_.advance();
      sender_ = sender_ + 1 < config::cluster ? sender_ + 1 : 0;
    }
    --ahead_;
  }
  /// Delays a kernel that is timed alone as other ranks would: until it may receive the next row.
  CE_DEVICE void lag() {
    if (lag_ == 0) return;
    const uint32 sent_at = from_lane(sent_at_, (sent_ - ahead_ - 1) % lanes);
    while (uint32(nanoseconds()) - sent_at < lag_) await_others();
  }

 private:
  CE_DEVICE static uint32 lag_of(const DecoupledRing::Block& block) {
    const PeerExchange& exchange = *block.arguments.exchange;
    return exchange.lag + exchange.lag_of_cluster * uint32(block.clusters);
  }

  const DecoupledRing::Block& block_;
  const Operation::KernelScalars& kernel_scalars_;
  DecoupledRing::RowQueue queue_;
  Reduction reduction_;
  int64 index_;
  Operation::RowPrefetch prefetch_;
  int sender_ = 0;  ///< rank of the block that sends the row
  int ahead_ = 0;   ///< number of rows sent and not received yet
  const uint32 lag_;
  int sent_ = 0;        ///< number of rows sent
  uint32 sent_at_ = 0;  ///< in lane i: when the latest of the rows i, i + 32, ... was sent
};
template <>
class RowSender<false> {
 public:
  CE_DEVICE RowSender(const DecoupledRing::Block&, const Operation::KernelScalars&) {}
  CE_DEVICE void send() {}
  CE_DEVICE void lag() {}
};

CE_DEVICE void finalize_rows(const DecoupledRing::Block& block) {
  constexpr bool sends = Operation::exchanges;
  int result_writer = 0;  // the block that stores the row's results
  DecoupledRing::RowQueue queue;
  Reduction reduction;
  const int64 first = queue.first(block);
  Operation::RowPrefetch prefetch(block.arguments, block.existing(first));
  prefetch.look_up(block.arguments);
  const Operation::BatchScalars batch(block.arguments);
  const Operation::KernelScalars kernel_scalars(block.arguments);
  Operation::begin_rows(block.arguments);
  RowSender<sends> sender(block, kernel_scalars);
  for (int64 index = first, next = 0; block.exists(index); index = next) {
    next = queue.pop(block);
    Operation operation(block.arguments, index, block.rank == result_writer && lane_index() == 0, prefetch,
                        kernel_scalars);
    result_writer = result_writer + 1 < config::cluster ? result_writer + 1 : 0;
    float value = 0.f;
    const bool constant = operation.constant(value);
    if (!constant) operation.prepare(batch);
    prefetch = Operation::RowPrefetch(block.arguments, block.existing(next));
    Marks not_simple;
    if constexpr (sends) {
      sender.send();
      sender.lag();
      if (!constant) {
        not_simple = marks_of(block, reduction);
        operation.finalize({});
      }
    } else {
      not_simple = reduction.receive(block, operation, constant);
    }
    if (lane_index() == 0)
      block.shared.rows_for_writers[reduction.slot] = {FinalizedRow<Operation>::of(operation), value,
                                                       constant, not_simple};
    mbarrier_arrive(block.shared.finalized[reduction.slot]);  // after all lanes have read the messages
    reduction.advance();
    prefetch.look_up(block.arguments);
    operation.store_row_results();
  }
}

using WriterChunk = DecoupledRing::ChunkOf<writers>;
constexpr int held_at_once = held_chunks > 0 ? held_chunks : 1;
static_assert(chunks % held_at_once == 0);

/// A writer's part of a chunk in registers.
struct HeldChunk {
  Elements<problem::Element, config::vec> of[WriterChunk::count];

  CE_DEVICE void keep(const WriterChunk& tile) {
#pragma unroll
    for (int i = 0; i < WriterChunk::count; ++i) of[i] = tile.elements[i];
  }
  CE_DEVICE WriterChunk tile(const Slice& slice, int chunk, int thread) const {
    WriterChunk tile(slice.partition, slice.start_of(chunk), slice.end, thread);
#pragma unroll
    for (int i = 0; i < WriterChunk::count; ++i) tile.elements[i] = of[i];
    return tile;
  }
};

/// Writes the outputs of a chunk from the ring. Most chunks are plain except for the target, whose output is corrected
/// later.
template <class Operation>
CE_DEVICE void write_marked(const DecoupledRing::Block& block, const Operation& operation, const Slice& slice,
                            int chunk, const DecoupledRing::Stage& stage, int thread, bool simple) {
  DecoupledRing::RingTile<DecoupledRing::chunk_vectors, writers, true> tile(
      slice.partition, slice.start_of(chunk), slice.end, thread);
  if (simple && WriterChunk(slice.partition, slice.start_of(chunk), slice.end, thread).full()) {
    block.fill(tile, stage, slice.start_of(chunk), Operation::padding());
    write_inside<true, config::store>(operation, slice.row, tile);
  } else {
    using Vectors = DecoupledRing::RingTile<writers, writers>;
    each_vector<DecoupledRing, writers>(block, slice, chunk, stage, thread, [&](const Vectors& vectors) {
      write_outputs<config::store>(operation, slice.row, vectors, simple);
    });
  }
}

/// A writer's position in the ring: all chunks of one row after the other.
struct RingReader {
  const DecoupledRing::Block& block;
  int thread;
  DecoupledRing::Stage stage;

  CE_DEVICE WriterChunk take(const Slice& slice, int chunk) {
    WriterChunk tile(slice.partition, slice.start_of(chunk), slice.end, thread);
    await();
    block.fill(tile, stage, slice.start_of(chunk), Operation::padding());
    leave();
    return tile;
  }
  CE_DEVICE void await() const { DecoupledRing::wait(block.shared.full[stage.index], stage.parity); }
  CE_DEVICE void leave() {
    block.release(stage);
    stage.advance();
  }
};

CE_DEVICE void write_rows(const DecoupledRing::Block& block, int thread) {
  RingReader reader{block, thread, {}};
  DecoupledRing::RowQueue queue;
  Reduction reduction;
  Operation operation(block.arguments);
  HeldChunk held[held_at_once];
  const int64 first = queue.first(block);
  if (held_chunks > 0 && block.exists(first)) {
    const Slice first_slice = block.slice_of(first);
#pragma unroll
    for (int i = 0; i < held_at_once; ++i) held[i].keep(reader.take(first_slice, i));
  }
  for (int64 index = first, next = 0; block.exists(index); index = next) {
    next = queue.pop(block);
    Slice slice = block.slice_of(index);
    keep(slice.row.out);
    const Slice next_slice = block.slice_of(block.existing(next));
    Edge<problem::Element> edge{block.edge_column(slice, thread)};
    edge.template read<Load::ca>(slice.row, Operation::padding());
    DecoupledRing::wait(block.shared.finalized[reduction.slot], reduction.parity);
    const auto finalized = block.shared.rows_for_writers[reduction.slot];
    reduction.advance();
    finalized.row.give(operation);
    cap(operation, edge);
    block.shared.weights.attach(operation, block.rank);
    auto mark = Marks::of(0);
#pragma unroll 1
    for (int from = 0; from < chunks; from += held_at_once) {
#pragma unroll
      for (int i = 0; i < held_at_once; ++i, mark.advance()) {
        if constexpr (Operation::some_simple)
          if (!finalized.constant) {
            reader.await();
            write_marked(block, operation, slice, from, reader.stage, thread,
                         operation.fast() && !finalized.not_simple.has(mark));
            reader.leave();
            continue;
          }
        const WriterChunk tile =
            held_chunks > 0 ? held[i].tile(slice, from + i, thread) : reader.take(slice, from + i);
        if (finalized.constant)
          tile.template write_value<config::store>(slice.row, finalized.value);
        else if constexpr (!Operation::some_simple)
          write_outputs<config::store>(operation, slice.row, tile);
        if constexpr (held_chunks > 0) {
          if (from + held_at_once < chunks)
            held[i].keep(reader.take(slice, from + held_at_once + i));
          else if (block.exists(next))
            held[i].keep(reader.take(next_slice, i));
        }
      }
    }
    block.shared.weights.detach(operation);
    write_edge<config::store>(operation, slice.row, edge, finalized.constant, finalized.value);
    if (!finalized.constant)
      correct_target<config::store, writers>(operation, slice.row, slice.partition, slice.begin, slice.end,
                                             thread, edge);
  }
}

}  // namespace ce

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  DecoupledRing::run(arguments, [](const DecoupledRing::Block& block, int thread) {
    if (thread < lanes)
      finalize_rows(block);
    else if (thread < lanes + team)
      DecoupledRing::reduce_rows<MarkingReducer<DecoupledRing>>(block, thread - lanes);
    else
      write_rows(block, thread - lanes - team);
  });
}
