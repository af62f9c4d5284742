// Properties of chunks that a reducing team determines once for many chunks, and passes to a later team: for
// `pipeline_decoupled`, whose loops over chunks have no instructions to spare.
#pragma once
#include "row/ring.cuh"

namespace ce {

/// A set of chunks, below 32.
struct ChunkMarks {
  int bits = 0;

  static constexpr int words = 1;
  template <class Visit>
  CE_DEVICE void each(Visit& visit) {
    visit(bits);
  }
  CE_DEVICE static ChunkMarks of(int chunk) { return {1 << chunk}; }
  CE_DEVICE static ChunkMarks below(int count) { return {count == 0 ? 0 : int((2u << (count - 1)) - 1)}; }
  CE_DEVICE void leave_out(int chunk) { bits &= ~(1 << chunk); }
  /// Advances to the next chunks.
  CE_DEVICE void advance() { bits <<= 1; }
  CE_DEVICE bool has(const ChunkMarks& any) const { return (bits & any.bits) != 0; }
  CE_DEVICE void merge(const ChunkMarks& other) { bits |= other.bits; }
  CE_DEVICE ChunkMarks of_warp() const {
    if (!any_lane(bits != 0)) return {};
    ChunkMarks all = *this;
#pragma unroll
    for (int mask = lanes / 2; mask > 0; mask /= 2) all.bits |= shuffle_xor(all.bits, mask);
    return all;
  }
};

/// The marks of an operation that has simple and other tiles: the reducing team finds out which chunks are not simple.
template <bool some_simple>
struct MarksOf {
  using Type = ChunkMarks;
};
template <>
struct MarksOf<false> {
  using Type = NoMarks;
};

/// Visits a chunk in the ring vector by vector: used for rare chunks whose code would be long if unrolled.
template <class Ring, int threads, class Visit>
CE_DEVICE void each_vector(const typename Ring::Block& block, const typename Ring::Slice& slice, int chunk,
                           const typename Ring::Stage& stage, int thread, const Visit& visit) {
  const int at = slice.start_of(chunk);
#pragma unroll 1
  for (int from = 0; from < Ring::chunk_vectors; from += threads) {
    typename Ring::template RingTile<threads, threads> tile(slice.partition, at + from, slice.end, thread);
    block.fill(tile, stage, at, Operation::padding());
    visit(tile);
  }
}

/// The sums of the weights of a thread's chunks, and of all chunks of its warp, if they are equal for every row and few
/// enough to keep. Otherwise each row adds them up again.
template <class Ring, class Operation, bool kept>
struct ChunkWeights {
  CE_DEVICE ChunkWeights(const typename Ring::Block&, int) {}
  CE_DEVICE void provide(Operation&, int) const {}
  CE_DEVICE void provide_of_warp(typename Operation::Stats&) const {}
};
template <class Ring, class Operation>
struct ChunkWeights<Ring, Operation, true> {
  float of[Ring::chunks];
  CompensatedSum<narrow> of_warp;

  CE_DEVICE ChunkWeights(const typename Ring::Block& block, int thread) {
    Operation operation(block.arguments);
    block.shared.weights.attach(operation, block.rank);
    const auto slice = block.slice_of(0);
#pragma unroll
    for (int chunk = 0; chunk < Ring::chunks; ++chunk) {
      of[chunk] = operation.weights_of(
          typename Ring::Chunk(slice.partition, slice.start_of(chunk), slice.end, thread));
      of_warp.value += of[chunk];
    }
    of_warp = warp_sum(of_warp);
  }
  CE_DEVICE void provide(Operation& operation, int chunk) const {
    float weight = of[0];
#pragma unroll
    for (int i = 1; i < Ring::chunks; ++i) weight = chunk == i ? of[i] : weight;
    operation.knows_weight = true;
    operation.tile_weight = weight;
  }
  CE_DEVICE void provide_of_warp(typename Operation::Stats& stats) const { stats.weight = of_warp; }
};

/// The chunks of a row that are full and without the target, for a reducing thread if no maximum is needed: determined
/// once for all chunks.
template <class Ring, class Operation, bool used>
struct PlainChunks {
  CE_DEVICE PlainChunks(const typename Ring::Block&, int) {}
  CE_DEVICE NoMarks of(const typename Ring::Slice&, const Operation&) const { return {}; }
};
template <class Ring, class Operation>
struct PlainChunks<Ring, Operation, true> {
  using Slice = typename Ring::Slice;
  const int thread;
  ChunkMarks full;  ///< for any row, if all are cut alike

  CE_DEVICE PlainChunks(const typename Ring::Block& block, int t)
      : thread(t), full(full_of(block.slice_of(0), Operation(block.arguments))) {}
  CE_DEVICE ChunkMarks of(const Slice& slice, const Operation& operation) const {
    ChunkMarks plain = Partition::exact ? full : full_of(slice, operation);
    if constexpr (Operation::has_target) {
      constexpr int vec = config::vec;
      const int distance = operation.target_column() - slice.partition.column_of(slice.begin + thread);
      if (distance >= 0 && distance < Ring::chunks * Ring::chunk_vectors * vec &&
          distance / vec % Ring::team == 0)
        plain.leave_out(distance / (Ring::chunk_vectors * vec));
    }
    return plain;
  }

 private:
  CE_DEVICE ChunkMarks full_of(const Slice& slice, const Operation& operation) const {
    if (Operation::Stats::exponentials && operation.needs_maximum()) return {};
    if constexpr (Partition::exact &&
                  Partition::most_vectors == config::cluster * Ring::chunks * Ring::chunk_vectors)
      return ChunkMarks::below(Ring::chunks);
    const int of_warp = slice.begin + thread / lanes * lanes;
    const int beyond_first = slice.end - of_warp - ((Ring::Chunk::count - 1) * Ring::team + lanes);
    ChunkMarks all = ChunkMarks::below(beyond_first < 0 ? 0 : beyond_first / Ring::chunk_vectors + 1);
    if (!Partition::exact && of_warp < slice.partition.first) all.leave_out(0);
    return all;
  }
};

/// Like extend(), if no maximum is needed.
template <class Operation, class Stats, class Tile>
CE_DEVICE void extend_alone(const Operation& operation, Stats& stats, Tile& tile) {
  if constexpr (Stats::exponentials) {
    stats.max = 0.f;
    observe_largest(stats, tile);
  }
  operation.add(stats, tile);
}

/// Like Ring::ChunkReducer, with all of the above; it also leaves capped logits in the ring for the writers.
template <class Ring>
struct MarkingReducer {
  using Stage = typename Ring::Stage;
  using Slice = typename Ring::Slice;
  using Stats = Operation::Stats;
  using Marks = typename Ring::RowMessage::Marks;
  static constexpr bool marks_chunks = Operation::some_simple;
  static_assert(!marks_chunks || Ring::chunks <= 32);
  static constexpr bool weights_known =
      Operation::all_weights && Operation::has_target && Partition::exact && Ring::chunks <= 8;

  const typename Ring::Block& block;
  const int thread;
  const ChunkWeights<Ring, Operation, weights_known> weights;
  const PlainChunks<Ring, Operation, marks_chunks> plain_chunks;
  Marks plain = {}, mark = {};  ///< marks of the row, and the bit of the chunk
  Marks not_simple = {};        ///< marks of the row's chunks

  CE_DEVICE MarkingReducer(const typename Ring::Block& of, int t)
      : block(of), thread(t), weights(of, t), plain_chunks(of, t) {}
  CE_DEVICE void begin(const Slice& slice, const Operation& operation) {
    plain = plain_chunks.of(slice, operation);
    mark = Marks::of(0);
    not_simple = {};
  }
  CE_DEVICE void add(Operation& operation, Stats& stats, const Slice& slice, int chunk, const Stage& stage) {
    if constexpr (marks_chunks) {
      // For a chunk that is not plain, the values read here are not used.
      typename Ring::template RingTile<Ring::chunk_vectors, Ring::team, true> tile(
          slice.partition, slice.start_of(chunk), slice.end, thread);
      block.fill(tile, stage, slice.start_of(chunk), operation.padding());
      if (!plain.has(mark) || !operation.takes_plainly(tile)) {
        add_vectors(operation, stats, slice, chunk, stage);
      } else {
        weights.provide(operation, chunk);
        extend_alone(operation, stats, tile);
        put_back(tile, slice, chunk, stage);
      }
      block.release(stage);
    } else {
      typename Ring::Chunk tile(slice.partition, slice.start_of(chunk), slice.end, thread);
      block.fill(tile, stage, slice.start_of(chunk), operation.padding());
      block.release(stage);
      weights.provide(operation, chunk);
      extend(operation, stats, tile);
      if constexpr (Ring::caps_in_ring) put_back(tile, slice, chunk, stage);
    }
  }
  CE_DEVICE void next_chunk() { mark.advance(); }
  /// \return marks of the warp's chunks that are not simple
  CE_DEVICE Marks end(Stats& stats) const {
    weights.provide_of_warp(stats);
    return not_simple.of_warp();
  }

 private:
  CE_DEVICE void add_vectors(Operation& operation, Stats& stats, const Slice& slice, int chunk,
                             const Stage& stage) {
    operation.knows_weight = false;
    using Vectors = typename Ring::template RingTile<Ring::team, Ring::team>;
    each_vector<Ring, Ring::team>(block, slice, chunk, stage, thread, [&](Vectors& tile) {
      if (!extend(operation, stats, tile)) not_simple.merge(mark);
      put_back(tile, slice, chunk, stage);
    });
  }
  template <class AnyTile>
  CE_DEVICE void put_back(const AnyTile& tile, const Slice& slice, int chunk, const Stage& stage) const {
    Words<4>(&place)[Ring::chunk_vectors] = block.shared.ring[stage.index][0];
    const int at = slice.start_of(chunk);
    tile.each_inside([&](int i, int v) { place[v - at] = tile.elements[i].of_input[0].data; });
  }
};

}  // namespace ce
