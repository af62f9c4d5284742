// Variant `pipeline`: blocks or clusters that stay; one warp loads, some reduce, some write.
//
// As many clusters as the GPU holds at once walk over the rows. The part of a row that a block has flows through a ring of
// chunks in its shared memory, and through three roles that never wait for each other unless the ring is full or empty:
//
//     loader    | row r+1, chunk 3      bulk loads into slots that the writers have emptied
//     reducers  | row r+1, chunk 1      read a chunk as it lands; after the last one send their part to every block
//     writers   | row r,   chunk 2      have the parts of all blocks: outputs, and the slot is empty
//
// So a row is reduced while the one before it is written, and memory reads and writes overlap at any width. Needs sm_90.
// Moves 1 read + 1 write. Bound by the memory; in 16 bits the exponentials of reducers and writers come next.
//
// axis warps = 9 17
// axis vec = 4 8
// axis tile = 1024 2048 4096 8192
// axis cluster = 1 2 3 4 6 8
// axis stages = 1 2 4 6
// axis store = wb cg cs
//
// Ledger
//   1  after `persistent`, where all threads reduce a row and then write it, and memory idles in between
#pragma once
#include "cluster_join.cuh"
#include "tile.cuh"

namespace ce {

using RowCut = Cut<problem::Element, problem::columns, config::vec, problem::aligned>;

constexpr int team_warps = (config::warps - 1) / 2;  // reducers, and as many writers
constexpr int team = lanes * team_warps;
constexpr int chunk_vectors = config::tile / config::vec;
constexpr int part_vectors = ((RowCut::most_vectors + config::cluster - 1) / config::cluster + 7) / 8 * 8;  // lines
constexpr int chunks = (part_vectors + chunk_vectors - 1) / chunk_vectors;
constexpr int slots = chunks + config::stages;
using Chunk = Tile<problem::Element, RowCut, chunk_vectors / team, team, false>;

/// What a warp of reducers sends to every block of the cluster.
struct Message {
  Operation::Part part;
  float target_logit;  // read before anybody writes over it
};

struct Shared {
  Words<4> ring[slots][problem::inputs][chunk_vectors];
  Arrival filled[slots], emptied[slots];
  // In turns: a block that has reduced a row has emptied a slot of the one before it, so all of its writers have read
  // the messages of that row, as long as the ring holds less than two rows.
  Arrival sent[2];
  Message messages[2][config::cluster * team_warps];
};
static_assert(sizeof(Shared) <= config::shared_bytes);
static_assert(config::stages < chunks);

/// A place in the ring, and the parity of the phase that it is in.
struct Slot {
  int index = 0, parity = 0;
  CE_DEVICE void advance() {
    if (++index == slots) {
      index = 0;
      parity ^= 1;
    }
  }
};

/// This block's part of a row: vectors [begin, end); the first of the first block may lie before the row.
struct RowPart {
  Row<problem::Element> row;
  RowCut cut;
  int begin, end;

  CE_DEVICE RowPart(const Arguments& arguments, int64 index, int rank)
      : row(arguments, index), cut(row.in[0]), begin(rank * part_vectors) {
    end = begin + part_vectors < cut.end ? begin + part_vectors : cut.end;
  }
  CE_DEVICE int start_of(int chunk) const { return begin + chunk * chunk_vectors; }
};

/// The rows of a cluster, and this block's rank in it.
struct Walk {
  const Arguments& arguments;
  Shared& shared;
  int rank;
  int64 first, step;
};

CE_DEVICE void load_rows(const Walk& walk) {
  Slot slot;
  bool reused = false;  // the ring has been around once
  for (int64 index = walk.first; index < walk.arguments.rows; index += walk.step) {
    const RowPart part(walk.arguments, index, walk.rank);
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (reused) arrival_wait(walk.shared.emptied[slot.index], slot.parity ^ 1);
      const int at = part.start_of(chunk), first = at > part.cut.first ? at : part.cut.first;
      const int last = at + chunk_vectors < part.end ? at + chunk_vectors : part.end;
      const bool any = first < last;
      for (int i = 0; i < problem::inputs; ++i)
        bulk_load(&walk.shared.ring[slot.index][i][any ? first - at : 0],
                  part.row.in[i] + part.cut.column_of(any ? first : part.cut.first),
                  any ? int(sizeof(Words<4>)) * (last - first) : 0, walk.shared.filled[slot.index]);
      slot.advance();
      reused = reused || slot.index == 0;
    }
  }
}

/// A chunk of a row from the ring.
CE_DEVICE void fill(Chunk& tile, const Shared& shared, const Slot& slot, int at, float padding) {
  tile.fill_at(at, padding, [&](int v) {
    Elements<problem::Element, config::vec> elements;
#pragma unroll
    for (int i = 0; i < problem::inputs; ++i) elements.of_input[i] = {shared.ring[slot.index][i][v - at]};
    return elements;
  });
}

CE_DEVICE void reduce_rows(const Walk& walk, int thread) {
  Slot slot;
  int turn = 0;
  Operation::Early next(walk.arguments, walk.first < walk.arguments.rows ? walk.first : 0);
  for (int64 index = walk.first; index < walk.arguments.rows; index += walk.step) {
    const RowPart part(walk.arguments, index, walk.rank);
    Operation operation(walk.arguments, index, false, next);
    if (index + walk.step < walk.arguments.rows) next = Operation::Early(walk.arguments, index + walk.step);
    if (float value; operation.constant(value)) {
      for (int chunk = 0; chunk < chunks; ++chunk) slot.advance();
      continue;
    }
    const float target_logit = operation.target_logit(part.row);
    Operation::Part seen;
    if constexpr (!RowCut::whole) {
      Edge<problem::Element> edge{walk.rank == 0 ? part.cut.edge_column(thread) : -1};
      edge.template read<Load::ca>(part.row, operation.padding());
      extend(operation, seen, edge);
    }
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk, slot.advance()) {
      arrival_wait(walk.shared.filled[slot.index], slot.parity);
      Chunk tile(part.cut, part.start_of(chunk), part.end, thread);
      fill(tile, walk.shared, slot, part.start_of(chunk), operation.padding());
      extend(operation, seen, tile);
    }
    seen = warp_join(seen, operation.factor());
    if (const int other = lane_index(); other < config::cluster) {
      Message& own = walk.shared.messages[turn][walk.rank * team_warps + thread / lanes];
      Message& message = config::cluster == 1 ? own : *cluster_shared(&own, other);
      message.part.assign(seen);
      message.target_logit = target_logit;
      if constexpr (config::cluster == 1)
        arrival_arrive(walk.shared.sent[turn]);
      else
        cluster_arrival_arrive(walk.shared.sent[turn], other);
    }
    turn ^= 1;
  }
}

CE_DEVICE void write_rows(const Walk& walk, int thread) {
  Slot slot;
  int turn = 0, parity = 0;
  Operation::Early next(walk.arguments, walk.first < walk.arguments.rows ? walk.first : 0);
  for (int64 index = walk.first; index < walk.arguments.rows; index += walk.step) {
    const RowPart part(walk.arguments, index, walk.rank);
    Operation operation(walk.arguments, index, walk.rank == 0 && thread == 0, next);
    if (index + walk.step < walk.arguments.rows) next = Operation::Early(walk.arguments, index + walk.step);
    Edge<problem::Element> edge{walk.rank == 0 ? part.cut.edge_column(thread) : -1};
    edge.template read<Load::ca>(part.row, operation.padding());
    float value = 0.f;
    const bool constant = operation.constant(value);
    if (!constant) {
      if constexpr (config::cluster == 1)
        arrival_wait(walk.shared.sent[turn], parity);
      else
        cluster_arrival_wait(walk.shared.sent[turn], parity);
      const Message(&messages)[config::cluster * team_warps] = walk.shared.messages[turn];
      Operation::Part total;
#pragma unroll
      for (int i = 0; i < config::cluster * team_warps; i += lanes)
        if (i + lane_index() < config::cluster * team_warps)
          total.join(messages[i + lane_index()].part, operation.factor());
      operation.prepare(messages[0].target_logit);
      operation.settle(warp_join(total, operation.factor()));
      turn ^= 1;
      if (turn == 0) parity ^= 1;
    }
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk, slot.advance()) {
      arrival_wait(walk.shared.filled[slot.index], slot.parity);
      Chunk tile(part.cut, part.start_of(chunk), part.end, thread);
      fill(tile, walk.shared, slot, part.start_of(chunk), operation.padding());
      warp_barrier();
      if (lane_index() == 0) arrival_arrive(walk.shared.emptied[slot.index]);
#pragma unroll
      for (int i = 0; i < Chunk::count; ++i) {
        const int column = tile.column_of(i);
        const auto outputs = constant ? Vector<problem::Element, config::vec>::filled(value)
                                      : operation.apply(tile.elements[i], column);
        if (tile.inside(i)) part.row.template write<config::store>(column, outputs);
      }
    }
    if (edge.column >= 0)
      part.row.template write_element<config::store>(
          edge.column, constant ? Vector<problem::Element, 1>::filled(value)
                                : operation.apply(edge.elements[0], edge.column));
    if (!constant)
      correct_target<config::store, team>(operation, part.row, part.cut, part.begin, part.end, thread, edge);
  }
}

}  // namespace ce

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  Shared& shared = shared_memory<Shared>();
  const int rank = config::cluster == 1 ? 0 : cluster_rank();
  const Walk walk{arguments, shared, rank, block_index() / config::cluster, block_count() / config::cluster};
  if (thread_index() == 0) {
    for (int slot = 0; slot < slots; ++slot) {
      arrival_init(shared.filled[slot], problem::inputs);
      arrival_init(shared.emptied[slot], team_warps);
    }
    for (int turn = 0; turn < 2; ++turn) arrival_init(shared.sent[turn], config::cluster * team_warps);
  }
  block_barrier();
  if constexpr (config::cluster > 1) {  // every block has started: there is shared memory to write to
    cluster_arrive();
    cluster_wait();
  }
  if (warp_index() == 0) {
    if (lane_index() == 0) load_rows(walk);
  } else if (warp_index() <= team_warps) {
    reduce_rows(walk, thread_index() - lanes);
  } else {
    write_rows(walk, thread_index() - lanes - team);
  }
  if constexpr (config::cluster > 1) {  // no block may end while others send to it
    warp_barrier();
    cluster_arrive();
    cluster_wait();
  }
}
