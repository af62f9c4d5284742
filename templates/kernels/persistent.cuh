// Variant `persistent`: a row in the registers and the shared memory of blocks that stay.
//
// As many clusters as the GPU holds at once take one row after the other, whoever is ready the next one. The
// part of a row that a block has arrives in chunks through a ring in its shared memory, which one warp keeps full.
// The others move the first chunks on into their registers, which frees the slots, and leave the rest there:
//
//     loader    | chunks of row s + 1, into every slot that is free
//     workers   | chunks 0 1 to registers, 2 3 4 stay | statistics | outputs of 2 3 4 | outputs of 0 1 |   row s
//
// A multiprocessor has more registers than shared memory. So a row lies in fewer blocks than if it were in shared
// memory alone, one of 128256 columns in 16 bits in a single one: fewer blocks wait for each other, and what is
// left of the ring loads ahead. Against `pipeline`, nothing is reduced while outputs are written: the loads go on,
// but the arithmetic has to fit in between. Needs sm_90. Moves 1 read + 1 write. Bound by the memory, in 16 bits
// with options by instructions.
//
// axis warps = 12 16 20
// axis vec = 4 8
// axis unroll = 1 2 3 4
// axis cluster = 1 2 3 4 6 8
// axis stages = 2 3 4 5 6
// axis hold = 4 6 8 9 12 15 16 18 20 24
// axis load = ca last
// axis store = wb cg
#pragma once
#include "device/device.cuh"

namespace ce {

constexpr int team_warps = config::warps - 1;
constexpr int readers = lanes * team_warps;
constexpr int chunk_vectors = config::unroll * readers;
constexpr int held_chunks = config::hold / config::unroll;
constexpr bool settles_apart = false;

}  // namespace ce

#include "row/ring.cuh"

namespace ce {

/// What a thread has of a chunk.
struct Piece {
  Elements<problem::Element, config::vec> of[config::unroll];
};

/// A row, as a thread of a block of its cluster sees it.
struct Chunks {
  const Site& site;
  const RowPart& part;
  int thread;
  float padding;

  CE_DEVICE Chunk tile(int chunk) const { return {part.cut, part.start_of(chunk), part.end, thread}; }
  CE_DEVICE Chunk tile(int chunk, const Piece& piece) const {
    Chunk result = tile(chunk);
#pragma unroll
    for (int i = 0; i < config::unroll; ++i) result.elements[i] = piece.of[i];
    return result;
  }
  CE_DEVICE Piece read(int chunk, const Slot& slot) const {
    Chunk from = tile(chunk);
    fill(from, site.shared, slot, part.start_of(chunk), padding);
    Piece piece;
#pragma unroll
    for (int i = 0; i < config::unroll; ++i) piece.of[i] = from.elements[i];
    return piece;
  }
  CE_DEVICE Piece read_when_filled(int chunk, const Slot& slot) const {
    arrival_wait(site.shared.filled[slot.index], slot.parity);
    return read(chunk, slot);
  }
};

CE_DEVICE void work(const Site& site, int thread) {
  const int warp = site.rank * team_warps + thread / lanes;
  int recorder = 0;  // the warp that records the row: all in turn, since it falls behind by that
  Slot slot;
  Rows rows;
  Exchange exchange;
  Operation::Early early(site.arguments, site.existing(site.cluster));
  early.look_up(site.arguments);
  Operation::Common common;
  const Operation::Fixed fixed(site.arguments);
  bool is_first = true;
  for (int64 index = site.cluster, next = 0; site.exists(index); index = next) {
    next = rows.next(site);
    const RowPart part(site.arguments, index, site.rank);
    Operation operation(site.arguments, index, warp == recorder && lane_index() == 0, early, fixed);
    recorder = recorder + 1 < config::cluster * team_warps ? recorder + 1 : 0;
    Edge<problem::Element> edge{edge_of(site, part, thread)};
    edge.template read<Load::ca>(part.row, operation.padding());
    float value = 0.f;
    const bool constant = operation.constant(value);
    const auto target_logit = constant ? problem::Element{} : operation.target_logit(part.row);
    early = Operation::Early(site.arguments, site.existing(next));
    Operation::Part seen;
    if constexpr (!RowCut::whole)
      if (!constant) extend(operation, seen, edge);
    site.shared.weights.lend(operation, site.rank);

    const Chunks all{site, part, thread, operation.padding()};
    Piece held[held_chunks];
    Piece ahead = all.read_when_filled(0, slot);  // of the next chunk, while one is reduced
#pragma unroll
    for (int chunk = 0; chunk < held_chunks; ++chunk) {
      held[chunk] = ahead;
      const Slot done = slot;
      slot.advance();
      if (chunk + 1 < chunks) ahead = all.read_when_filled(chunk + 1, slot);
      release(site, done);
      Chunk tile = all.tile(chunk, held[chunk]);
      if (!constant) extend(operation, seen, tile);
    }
    const Slot first_left = slot;
#pragma unroll 1
    for (int chunk = held_chunks; chunk < chunks; ++chunk) {
      Chunk tile = all.tile(chunk, ahead);
      slot.advance();
      if (chunk + 1 < chunks) ahead = all.read_when_filled(chunk + 1, slot);
      if (!constant) extend(operation, seen, tile);
    }
    exchange.send(site, warp, warp_join(seen, operation.factor()), target_logit);
    if (is_first) common = Operation::Common(site.arguments);  // late: until here ce_count is not waited for
    is_first = false;
    if (!constant) operation.prepare(common);
    exchange.receive(site, operation, constant);
    exchange.advance();

    const auto write = [&](const Chunk& tile) {
      if (constant)
        tile.template write_value<config::store>(part.row, value);
      else
        write_outputs<config::store>(operation, part.row, tile);
    };
    slot = first_left;
    if (held_chunks < chunks) ahead = all.read(held_chunks, slot);
#pragma unroll 1
    for (int chunk = held_chunks; chunk < chunks; ++chunk) {
      const Chunk tile = all.tile(chunk, ahead);
      const Slot done = slot;
      slot.advance();
      if (chunk + 1 < chunks) ahead = all.read(chunk + 1, slot);
      release(site, done);
      write(tile);
    }
#pragma unroll
    for (int chunk = 0; chunk < held_chunks; ++chunk) write(all.tile(chunk, held[chunk]));
    site.shared.weights.take_back(operation);
    early.look_up(site.arguments);
    write_edge<config::store>(operation, part.row, edge, constant, value);
    operation.record();  // late: it would hold the chunks up
    if (constant) continue;
    correct_target<config::store, team>(operation, part.row, part.cut, part.begin, part.end, thread, edge);
  }
}

}  // namespace ce

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  take_rows(arguments, [](const Site& site, int thread) { work(site, thread); });
}
