// Variant `pipeline_decoupled`: as `pipeline`, with a ring for several rows, and a warp that settles them.
//
// For cross entropy with options that take so much arithmetic, or so much shared memory for the weights of all classes,
// that what happens between the last chunk of a row and its first output holds `pipeline` up:
//
//     loader    | row s + 2    bulk loads into slots that reducers and writers have read
//     reducers  | row s + 1    read a chunk as it lands; after the last one send their part to all blocks
//     settler   | row s        joins the parts of all blocks: loss of the row, factors of its outputs
//     writers   | row s        outputs; take `hold` vectors a thread from the ring while they wait for the settler
//
// In `pipeline` each writing warp joins the parts and settles the row, and nothing of the next but one row is loaded
// before. Here one warp of the block does so, and the ring, together with the registers of the writers, holds as many rows
// as there is room for: small parts, in large clusters, are no hindrance. In f32 there may be more reducers than writers,
// and there may be more writers, which then hold more of the next row.
// Needs sm_90. Moves 1 read + 1 write. Bound by the memory; with a soft cap in 16 bits by instructions.
//
// axis warps = 18 22 23 26 30
// axis reducers = 8 12 14 16
// axis vec = 4 8
// axis tile = 3072 4096 5376 6144 8192 9216 10752
// axis cluster = 1 2 3 4 8 16
// axis stages = 1 2 3 4 5 6 7 8 9 10
// axis hold = 2 3 4 6 8
// axis load = last
// axis store = wb
#pragma once
#include "device/device.cuh"

namespace ce {

constexpr int team_warps = config::reducers, writer_warps = config::warps - 2 - team_warps;
constexpr int writers = lanes * writer_warps, readers = lanes * team_warps + writers;
constexpr int chunk_vectors = config::tile / config::vec;

/// That a writer takes from the ring before it knows their row: none where reducers put logits under their cap there.
constexpr int held_chunks = Operation::caps ? 0 : config::hold * writers / chunk_vectors;
constexpr bool settles_apart = true;

}  // namespace ce

#include "row/ring.cuh"

namespace ce {

CE_DEVICE void settle_rows(const Site& site) {
  int recorder = 0;  // the block that records the row
  Rows rows;
  Exchange exchange;
  Operation::Early early(site.arguments, site.existing(site.cluster));
  early.look_up(site.arguments);
  const Operation::Common common(site.arguments);
  const Operation::Fixed fixed(site.arguments);
  for (int64 index = site.cluster, next = 0; site.exists(index); index = next) {
    next = rows.next(site);
    Operation operation(site.arguments, index, site.rank == recorder && lane_index() == 0, early, fixed);
    recorder = recorder + 1 < config::cluster ? recorder + 1 : 0;
    float value = 0.f;
    const bool constant = operation.constant(value);
    if (!constant) operation.prepare(common);
    early = Operation::Early(site.arguments, site.existing(next));
    const ChunkMarks marks = exchange.receive(site, operation, constant);
    if (lane_index() == 0)
      site.shared.outcomes[exchange.turn] = {operation.settled(), value, constant, marks};
    arrival_arrive(site.shared.settled[exchange.turn]);  // every lane has read messages
    exchange.advance();
    early.look_up(site.arguments);
    operation.record();
  }
}

using WriterChunk = ChunkOf<writers>;
constexpr int places = held_chunks > 0 ? held_chunks : 1;  // of a writer, for chunks
static_assert(chunks % places == 0);

/// What a writer has of a chunk.
struct Piece {
  Elements<problem::Element, config::vec> of[WriterChunk::count];

  CE_DEVICE void keep(const WriterChunk& tile) {
#pragma unroll
    for (int i = 0; i < WriterChunk::count; ++i) of[i] = tile.elements[i];
  }
  CE_DEVICE WriterChunk tile(const RowPart& part, int chunk, int thread) const {
    WriterChunk tile(part.cut, part.start_of(chunk), part.end, thread);
#pragma unroll
    for (int i = 0; i < WriterChunk::count; ++i) tile.elements[i] = of[i];
    return tile;
  }
};

/// Writes the outputs of a chunk from the ring. Most chunks are plain but for the target, whose output is set right later.
template <class Operation>
CE_DEVICE void write_marked(const Site& site, const Operation& operation, const RowPart& part, int chunk,
                            const Slot& slot, int thread, bool simple) {
  RingTile<chunk_vectors, writers, true> tile(part.cut, part.start_of(chunk), part.end, thread);
  if (simple && WriterChunk(part.cut, part.start_of(chunk), part.end, thread).full()) {
    fill(tile, site.shared, slot, part.start_of(chunk), Operation::padding());
    write_inside<true, config::store>(operation, part.row, tile);
  } else {
    each_vector<writers>(site, part, chunk, slot, thread, [&](const RingTile<writers, writers>& vector) {
      write_outputs<config::store>(operation, part.row, vector, simple);
    });
  }
}

/// Takes chunks from the ring, one after the other, of one row after the other.
struct Taker {
  const Site& site;
  int thread;
  Slot slot;

  CE_DEVICE WriterChunk take(const RowPart& part, int chunk) {
    WriterChunk tile(part.cut, part.start_of(chunk), part.end, thread);
    await();
    fill(tile, site.shared, slot, part.start_of(chunk), Operation::padding());
    leave();
    return tile;
  }
  CE_DEVICE void await() const { arrival_wait<true>(site.shared.filled[slot.index], slot.parity); }
  CE_DEVICE void leave() {
    release(site, slot);
    slot.advance();
  }
};

CE_DEVICE void write_rows(const Site& site, int thread) {
  Taker taker{site, thread, {}};
  Rows rows;
  Exchange exchange;
  Operation operation(site.arguments);
  Piece held[places];
  if (held_chunks > 0 && site.exists(site.cluster)) {
    const RowPart first(site.arguments, site.cluster, site.rank);
#pragma unroll
    for (int i = 0; i < places; ++i) held[i].keep(taker.take(first, i));
  }
  for (int64 index = site.cluster, next = 0; site.exists(index); index = next) {
    next = rows.next(site);
    RowPart part(site.arguments, index, site.rank);
    keep(part.row.out);
    const RowPart part_of_next(site.arguments, site.existing(next), site.rank);
    Edge<problem::Element> edge{edge_of(site, part, thread)};
    edge.template read<Load::ca>(part.row, Operation::padding());
    arrival_wait<true>(site.shared.settled[exchange.turn], exchange.parity);
    const auto outcome = site.shared.outcomes[exchange.turn];
    exchange.advance();
    operation.put(outcome.row);
    cap(operation, edge);
    site.shared.weights.lend(operation, site.rank);
    auto mark = ChunkMarks::of(0);
#pragma unroll 1
    for (int from = 0; from < chunks; from += places) {
#pragma unroll
      for (int i = 0; i < places; ++i, mark.advance()) {
        if constexpr (marks_chunks)
          if (!outcome.constant) {
            taker.await();
            write_marked(site, operation, part, from, taker.slot, thread,
                         operation.fast() && !outcome.marks.has(mark));
            taker.leave();
            continue;
          }
        const WriterChunk tile =
            held_chunks > 0 ? held[i].tile(part, from + i, thread) : taker.take(part, from + i);
        if (outcome.constant)
          tile.template write_value<config::store>(part.row, outcome.value);
        else if constexpr (!marks_chunks)
          write_outputs<config::store>(operation, part.row, tile);
        if constexpr (held_chunks > 0) {
          if (from + places < chunks)
            held[i].keep(taker.take(part, from + places + i));
          else if (site.exists(next))
            held[i].keep(taker.take(part_of_next, i));
        }
      }
    }
    site.shared.weights.take_back(operation);
    write_edge<config::store>(operation, part.row, edge, outcome.constant, outcome.value);
    if (!outcome.constant)
      correct_target<config::store, writers>(operation, part.row, part.cut, part.begin, part.end, thread,
                                             edge);
  }
}

}  // namespace ce

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  take_rows(arguments, [](const Site& site, int thread) {
    if (thread < lanes)
      settle_rows(site);
    else if (thread < lanes + team)
      reduce_rows(
          site, thread - lanes, [] { return false; }, [](Operation&, const Exchange&, bool) {});
    else
      write_rows(site, thread - lanes - team);
  });
}
