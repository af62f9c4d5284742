// Variant `persistent`: blocks or clusters that stay, and a ring of chunks that never runs dry.
//
// As many clusters as the GPU holds at once walk over the rows. The parts of the rows of a block flow through
// a ring of slots in its shared memory, a chunk a slot: while a row is reduced and written, the chunks of the
// next rows load into the slots that it no longer needs.
//
//     ring:  | row r, chunks 0 .. n-1 (being reduced, then written) | row r+k, first chunks (loading) |
//
// `filled` of a slot ends a phase when its chunk has landed, `emptied` when every warp has read it for the
// last time. Thread 0 refills a slot one chunk after it was read, so that it hardly ever waits for the
// slowest warp. The logits are read from memory once at any width, and loads and stores overlap also where
// only one row fits a multiprocessor. Needs sm_90. Wins for the widest rows.
//
// axis warps = 8 16
// axis vec = 4 8
// axis tile = 2048 4096 8192
// axis cluster = 1 2 4 8
// axis stages = 1 2 4
// axis store = wb cg cs
//
// Ledger
//   1  ring of a part and `stages` chunks more; refill by thread 0, no producer warp
#pragma once
#include "cluster_join.cuh"
#include "tile.cuh"

namespace ce {

using RowCut = Cut<problem::Element, problem::columns, config::vec, problem::aligned>;

constexpr int chunk_vectors = config::tile / config::vec;
constexpr int part_vectors =
    ((RowCut::most_vectors + config::cluster - 1) / config::cluster + 7) / 8 * 8;  // lines
constexpr int chunks = (part_vectors + chunk_vectors - 1) / chunk_vectors;
constexpr int slots = chunks + config::stages;

struct Shared {
  Words<4> ring[slots][problem::inputs][chunk_vectors];
  Arrival filled[slots], emptied[slots];
  Operation::Part warp_parts[2][config::warps];  // in turns, one set a row
  Operation::Part block_parts[2][config::cluster];
};
static_assert(sizeof(Shared) <= config::shared_bytes);

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

/// Thread 0 only: what is loaded next, and where to.
struct Loader {
  int64 row;
  int chunk = 0;
  Slot slot;

  CE_DEVICE void load_next(const Arguments& arguments, int rank, int64 clusters, Shared& shared) {
    if (row >= arguments.rows) return;
    const RowPart part(arguments, row, rank);
    const int at = part.start_of(chunk), first = at > part.cut.first ? at : part.cut.first;
    const int last = at + chunk_vectors < part.end ? at + chunk_vectors : part.end;
    const int bytes = first < last ? int(sizeof(Words<4>)) * (last - first) : 0;
    for (int i = 0; i < problem::inputs; ++i)
      bulk_load(&shared.ring[slot.index][i][first < last ? first - at : 0],
                part.row.in[i] + part.cut.column_of(first < last ? first : part.cut.first), bytes,
                shared.filled[slot.index]);
    slot.advance();
    if (++chunk == chunks) {
      chunk = 0;
      row += clusters;
    }
  }
};

}  // namespace ce

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  using Element = problem::Element;
  constexpr int threads = lanes * config::warps;
  using Chunk = Tile<Element, RowCut, chunk_vectors / threads, threads, false>;

  Shared& shared = shared_memory<Shared>();
  const int rank = config::cluster == 1 ? 0 : cluster_rank();
  const int64 clusters = block_count() / config::cluster;
  Loader loader{block_index() / config::cluster};
  if (thread_index() == 0) {
    for (int slot = 0; slot < slots; ++slot) {
      arrival_init(shared.filled[slot], problem::inputs);
      arrival_init(shared.emptied[slot], config::warps);
    }
    for (int slot = 0; slot < slots; ++slot) loader.load_next(arguments, rank, clusters, shared);
  }
  block_barrier();
  if constexpr (config::cluster > 1) {  // every block has started: there is shared memory to write to
    cluster_arrive();
    cluster_wait();
  }

  // Thread 0 waits until every warp has read the slot, and loads the next chunk into it.
  Slot refill;
  const auto refill_one = [&] {
    if (thread_index() == 0) {
      arrival_wait(shared.emptied[refill.index], refill.parity);
      loader.load_next(arguments, rank, clusters, shared);
    }
    refill.advance();
  };
  const auto release = [&](const Slot& slot) {
    warp_barrier();
    if (lane_index() == 0) arrival_arrive(shared.emptied[slot.index]);
  };

  Slot front;  // of the row at hand
  int turn = 0;
  Operation::Early next(
      arguments, block_index() / config::cluster < arguments.rows ? block_index() / config::cluster : 0);
  for (int64 index = block_index() / config::cluster; index < arguments.rows; index += clusters) {
    const RowPart part(arguments, index, rank);
    Operation operation(arguments, index, rank == 0 && thread_index() == 0, next);
    if (index + clusters < arguments.rows) next = Operation::Early(arguments, index + clusters);
    Edge<Element> edge{rank == 0 ? part.cut.edge_column(thread_index()) : -1};
    edge.template read<Load::ca>(part.row, operation.padding());
    float value = 0.f;
    const bool constant = operation.constant(value);
    if (!constant) operation.prepare(operation.target_logit(part.row));

    Slot slot = front;
    const auto fill = [&](Chunk& tile, int at) {
      tile.fill_at(at, operation.padding(), [&](int v) {
        Elements<Element, config::vec> elements;
#pragma unroll
        for (int i = 0; i < problem::inputs; ++i) elements.of_input[i] = {shared.ring[slot.index][i][v - at]};
        return elements;
      });
    };
    Operation::Part seen;
    if constexpr (!RowCut::whole)
      if (!constant) extend(operation, seen, edge);
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk, slot.advance()) {
      arrival_wait(shared.filled[slot.index], slot.parity);
      if (!constant) {
        Chunk tile(part.cut, part.start_of(chunk), part.end, thread_index());
        fill(tile, part.start_of(chunk));
        extend(operation, seen, tile);
      }
      if constexpr (!Operation::has_output) {
        release(slot);
        if (chunk > 0) refill_one();
      }
    }
    if (!constant) {
      seen = block_join(seen, shared.warp_parts[turn], operation.factor());
      operation.settle(cluster_join(seen, shared.block_parts[turn], operation.factor()));
      turn ^= 1;
    }

    if constexpr (Operation::has_output) {
      slot = front;
#pragma unroll 1
      for (int chunk = 0; chunk < chunks; ++chunk, slot.advance()) {
        Chunk tile(part.cut, part.start_of(chunk), part.end, thread_index());
        fill(tile, part.start_of(chunk));
        release(slot);
        if (chunk > 0) refill_one();
#pragma unroll
        for (int i = 0; i < Chunk::count; ++i) {
          const int column = tile.column_of(i);
          const auto outputs = constant ? Vector<Element, config::vec>::filled(value)
                                        : operation.apply(tile.elements[i], column);
          if (tile.inside(i)) part.row.template write<config::store>(column, outputs);
        }
      }
      if (edge.column >= 0)
        part.row.template write_element<config::store>(
            edge.column,
            constant ? Vector<Element, 1>::filled(value) : operation.apply(edge.elements[0], edge.column));
      if (!constant)
        correct_target<config::store, threads>(operation, part.row, part.cut, part.begin, part.end,
                                               thread_index(), edge);
    }
    refill_one();
    front = slot;
  }
}
