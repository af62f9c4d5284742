// Variant `persistent`: blocks or clusters that stay, and a ring of chunks that never runs dry.
//
// As many clusters as the GPU holds at once walk over the rows. The parts of the rows of a block flow through a ring of
// slots in its shared memory, a chunk a slot: while a row is reduced and written, the chunks of the next rows load into
// the slots that it no longer needs.
//
//     ring:  | row r, chunks 0 .. n-1 (being reduced, then written) | row r+k, first chunks (loading) |
//
// `filled` of a slot ends a phase when its chunk has landed, `emptied` when every warp has read it for the last time.
// Thread 0 refills a slot one chunk after it was read, so that it hardly ever waits for the slowest warp. The logits are
// read from memory once at any width, and loads and stores overlap also where only one row fits a multiprocessor. Needs
// sm_90. Wins for the widest rows.
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
#include "row.cuh"

namespace ce {

using RowCut = Cut<problem::Element, problem::columns, config::vec, problem::aligned>;

constexpr int part_vectors = (RowCut::most_vectors + config::cluster - 1) / config::cluster;
constexpr int chunk_vectors = config::tile / config::vec;
constexpr int chunks = (part_vectors + chunk_vectors - 1) / chunk_vectors;
constexpr int slots = chunks + config::stages;

struct Shared {
  Words<4> ring[slots][chunk_vectors];
  Arrival filled[slots], emptied[slots];
  Statistics warp_parts[2][config::warps];  // in turns, one set a row
  Statistics block_parts[2][config::cluster];
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

/// This block's part of a row.
struct Part {
  const problem::Element* in;
  RowCut cut;
  int first, count;  // vectors [first, first + count)

  CE_DEVICE Part(const Arguments& arguments, int64 row, int rank)
      : in(row_start(static_cast<const problem::Element*>(arguments.input), row, arguments.input_stride)),
        cut(in),
        first(rank * part_vectors) {
    const int rest = cut.vectors - first;
    count = rest < 0 ? 0 : rest < part_vectors ? rest : part_vectors;
  }
  /// Vectors of a chunk.
  CE_DEVICE int size_of(int chunk) const {
    const int left = count - chunk * chunk_vectors;
    return left < 0 ? 0 : left < chunk_vectors ? left : chunk_vectors;
  }
};

/// Thread 0 only: what is loaded next, and where to.
struct Loader {
  int64 row;
  int chunk = 0;
  Slot slot;

  CE_DEVICE void load_next(const Arguments& arguments, int rank, int64 clusters, Shared& shared) {
    if (row >= arguments.rows) return;
    const Part part(arguments, row, rank);
    bulk_load(shared.ring[slot.index], part.in + part.cut.column_of(part.first + chunk * chunk_vectors),
              int(sizeof(Words<4>)) * part.size_of(chunk), shared.filled[slot.index]);
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
  constexpr int vec = config::vec, threads = lanes * config::warps;
  constexpr int unroll = chunk_vectors / threads;
  using Vec = Vector<Element, vec>;

  Shared& shared = shared_memory<Shared>();
  const int rank = config::cluster == 1 ? 0 : cluster_rank();
  const int64 clusters = block_count() / config::cluster;
  Loader loader{block_index() / config::cluster};
  if (thread_index() == 0) {
    for (int slot = 0; slot < slots; ++slot) {
      arrival_init(shared.filled[slot], 1);
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
  for (int64 row = block_index() / config::cluster; row < arguments.rows; row += clusters) {
    const Part part(arguments, row, rank);
    Element* out = row_start(static_cast<Element*>(arguments.output), row, arguments.output_stride);
    const int edge = rank == 0 ? part.cut.edge_column() : -1;
    float edge_value[1] = {-infinity()};
    if (edge >= 0) edge_value[0] = to_float(load_element<Load::ca>(part.in + edge));
    Epilogue epilogue(arguments, row, rank == 0 && thread_index() == 0);
    float value = 0.f;
    const bool constant = epilogue.constant(value);

    Slot slot = front;
    Statistics seen = {-infinity(), 0.f};
    if (!constant) extend(seen, edge_value);
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk, slot.advance()) {
      arrival_wait(shared.filled[slot.index], slot.parity);
      if (!constant) {
        const int size = part.size_of(chunk);
        float x[unroll * vec];
#pragma unroll
        for (int i = 0; i < unroll; ++i) {
          const int v = thread_index() + i * threads;
          float piece[vec];
          (v < size ? Vec{shared.ring[slot.index][v]} : nothing<Element, vec>()).values(piece);
#pragma unroll
          for (int k = 0; k < vec; ++k) x[i * vec + k] = piece[k];
        }
        extend(seen, x);
      }
      if constexpr (!Epilogue::has_output) {
        release(slot);
        if (chunk > 0) refill_one();
      }
    }
    if (!constant) {
      epilogue.settle(
          cluster_join(block_join(seen, shared.warp_parts[turn]), shared.block_parts[turn]));
      turn ^= 1;
    }

    if constexpr (Epilogue::has_output) {
      slot = front;
#pragma unroll 1
      for (int chunk = 0; chunk < chunks; ++chunk, slot.advance()) {
        const int size = part.size_of(chunk);
        Vec data[unroll];
#pragma unroll
        for (int i = 0; i < unroll; ++i)
          if (const int v = thread_index() + i * threads; v < size) data[i] = Vec{shared.ring[slot.index][v]};
        release(slot);
        if (chunk > 0) refill_one();
#pragma unroll
        for (int i = 0; i < unroll; ++i) {
          const int v = thread_index() + i * threads;
          float x[vec];
          data[i].values(x);
          const int column = part.cut.column_of(part.first + chunk * chunk_vectors + v);
          if (constant) {
#pragma unroll
            for (int k = 0; k < vec; ++k) x[k] = value;
          } else {
            epilogue.apply(x, column);
          }
          if (v < size) Vec::of(x).template write<config::store>(out + column);
        }
      }
      if (edge >= 0) {
        if (constant)
          edge_value[0] = value;
        else
          epilogue.apply(edge_value, edge);
        store_element<config::store>(out + edge, from_float<Element>(edge_value[0]));
      }
    }
    refill_one();
    front = slot;
  }
}
