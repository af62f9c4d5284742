// Variant `pipeline`: blocks or clusters that stay; one warp loads, some reduce, some write.
//
// As many clusters as the GPU holds at once take one row after the other, whoever is ready the next one. The
// part of a row that a block has flows through a ring of chunks in its shared memory, and through three roles
// that never wait for each other unless the ring is full or empty:
//
//     loader    | row s, chunk 3      bulk loads into slots that reducers and writers have read
//     reducers  | row s, chunk 1      read a chunk as it lands; after the last one send their part to all blocks
//     writers   | row r, chunk 2      have the parts of all blocks: outputs
//
// So a row is reduced while the one before it is written, and memory reads and writes overlap at any width.
// A cluster of 16 leaves multiprocessors idle, and is for rows that 8 blocks cannot hold. Needs sm_90. Moves 1
// read + 1 write. Bound by the memory; in 16 bits the exponentials of reducers and writers come next.
//
// axis warps = 17 21 25
// axis vec = 4 8
// axis tile = 2048 3072 4096 5120 6144 8192 9216 10240 12288
// axis cluster = 1 2 3 4 6 8 16
// axis stages = 1 2 3 4 5 6 8
// axis load = ca last
// axis store = wb cg
#pragma once
#include "device/device.cuh"

namespace ce {

constexpr int team_warps = (config::warps - 1) / 2;  // reducers, and as many writers
constexpr int readers = 2 * lanes * team_warps;
constexpr int chunk_vectors = config::tile / config::vec;
constexpr int held_chunks = 0;
constexpr bool settles_apart = false;

}  // namespace ce

#include "row/ring.cuh"

namespace ce {

CE_DEVICE void write_rows(const Site& site, int thread) {
  const int warp = site.rank * team_warps + thread / lanes;
  int recorder = 0;  // the warp that records the row: all in turn, since it falls behind by that
  Slot slot;
  Rows rows;
  Exchange exchange;
  Operation::Early early(site.arguments, site.existing(site.cluster));
  early.look_up(site.arguments);
  const Operation::Common common(site.arguments);
  const Operation::Fixed fixed(site.arguments);
  for (int64 index = site.cluster, next = 0; site.exists(index); index = next) {
    next = rows.next(site);
    const RowPart part(site.arguments, index, site.rank);
    Operation operation(site.arguments, index, warp == recorder && lane_index() == 0, early, fixed);
    recorder = recorder + 1 < config::cluster * team_warps ? recorder + 1 : 0;
    Edge<problem::Element> edge{edge_of(site, part, thread)};
    edge.template read<Load::ca>(part.row, operation.padding());
    float value = 0.f;
    const bool constant = operation.constant(value);
    if (!constant) operation.prepare(common);
    early = Operation::Early(site.arguments, site.existing(next));
    exchange.receive(site, operation, constant);
    exchange.advance();
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk, slot.advance()) {
      arrival_wait(site.shared.filled[slot.index], slot.parity);
      Chunk tile(part.cut, part.start_of(chunk), part.end, thread);
      fill(tile, site.shared, slot, part.start_of(chunk), operation.padding());
      release(site, slot);
      if (constant)
        tile.template write_value<config::store>(part.row, value);
      else
        write_outputs<config::store>(operation, part.row, tile);
    }
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
  take_rows(arguments, [](const Site& site, int thread) {
    if (thread < team)
      reduce_rows(
          site, thread, [] { return false; }, [](Operation&, const Exchange&, bool) {});
    else
      write_rows(site, thread - team);
  });
}
