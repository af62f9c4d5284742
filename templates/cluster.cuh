// Variant `cluster`: the row in the shared memory of the blocks of a cluster.
//
// The blocks of a cluster (1 to 8) share a row: each fetches its part with bulk copies, chunk by chunk, into its shared
// memory, and reads it from there twice, for the statistics and for the outputs.
//
//     bulk loads of all chunks -> wait for a chunk, join it, ... -> block -> parts to all blocks of the cluster
//                              -> outputs from shared memory
//
// The logits are read from memory exactly once at any width. A part is small, so several blocks live on a
// multiprocessor, each in another phase: while some wait for their chunks, others reduce or store. Needs sm_90.
// Wins for rows too wide for the registers of one block.
//
// axis warps = 4 8 16
// axis vec = 4 8
// axis tile = 1024 2048 4096 8192
// axis cluster = 1 2 3 4 6 8
// axis store = wb cg cs
//
// Ledger
//   1  whole part in flight at once; partial results written to every block before one cluster barrier; cluster sizes
//      that are no power of two, because they fill processor clusters of 18 multiprocessors better
#pragma once
#include "cluster_join.cuh"
#include "row.cuh"

namespace ce {

using RowCut = Cut<problem::Element, problem::columns, config::vec, problem::aligned>;

constexpr int part_vectors = (RowCut::most_vectors + config::cluster - 1) / config::cluster;
constexpr int chunk_vectors = config::tile / config::vec;
constexpr int chunks = (part_vectors + chunk_vectors - 1) / chunk_vectors;

struct Shared {
  Words<4> row[part_vectors];
  Arrival arrivals[chunks];
  Statistics warp_parts[config::warps];
  Statistics block_parts[config::cluster];
};
static_assert(sizeof(Shared) <= config::shared_bytes);

}  // namespace ce

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  using Element = problem::Element;
  constexpr int vec = config::vec, threads = lanes * config::warps;
  constexpr int unroll = chunk_vectors / threads;
  using Vec = Vector<Element, vec>;

  Shared& shared = shared_memory<Shared>();
  const int rank = config::cluster == 1 ? 0 : cluster_rank();
  const int64 row = block_index() / config::cluster;
  const Element* in = row_start(static_cast<const Element*>(arguments.input), row, arguments.input_stride);
  Element* out = row_start(static_cast<Element*>(arguments.output), row, arguments.output_stride);
  const RowCut cut(in);
  const int edge = rank == 0 ? cut.edge_column() : -1;
  const int first = rank * part_vectors;  // vectors [first, first + count) are this block's
  const int rest = cut.vectors - first;
  const int count = rest < part_vectors ? rest : part_vectors;

  Epilogue epilogue(arguments, row, rank == 0 && thread_index() == 0);
  if (float value; epilogue.constant(value)) {
    if constexpr (Epilogue::has_output) fill_row<config::store, threads>(out, cut, first, count, edge, value);
    return;
  }

  if (thread_index() == 0) {
    for (int chunk = 0; chunk < chunks; ++chunk) arrival_init(shared.arrivals[chunk]);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int at = chunk * chunk_vectors, left = count - at;
      if (left > 0)
        bulk_load(&shared.row[at], in + cut.column_of(first + at),
                  int(sizeof(Words<4>)) * (left < chunk_vectors ? left : chunk_vectors), shared.arrivals[chunk]);
    }
  }
  float edge_value[1] = {-infinity()};
  if (edge >= 0) edge_value[0] = to_float(load_element<Load::ca>(in + edge));
  block_barrier();
  if constexpr (config::cluster > 1) cluster_arrive();  // waited for before anyone writes to another block

  Statistics seen = {-infinity(), 0.f};
  extend(seen, edge_value);
#pragma unroll 1
  for (int at = 0; at < count; at += chunk_vectors) {
    arrival_wait(shared.arrivals[at / chunk_vectors]);
    float x[unroll * vec];
#pragma unroll
    for (int i = 0; i < unroll; ++i) {
      const int v = at + thread_index() + i * threads;
      float part[vec];
      (v < count ? Vec{shared.row[v]} : nothing<Element, vec>()).values(part);
#pragma unroll
      for (int k = 0; k < vec; ++k) x[i * vec + k] = part[k];
    }
    extend(seen, x);
  }
  const Statistics own = block_join(seen, shared.warp_parts);
  if constexpr (config::cluster > 1) cluster_wait();
  epilogue.settle(cluster_join(own, shared.block_parts));

  if constexpr (Epilogue::has_output) {
#pragma unroll 4
    for (int v = thread_index(); v < count; v += threads) {
      float x[vec];
      Vec{shared.row[v]}.values(x);
      const int column = cut.column_of(first + v);
      epilogue.apply(x, column);
      Vec::of(x).template write<config::store>(out + column);
    }
    if (edge >= 0) {
      epilogue.apply(edge_value, edge);
      store_element<config::store>(out + edge, from_float<Element>(edge_value[0]));
    }
  }
}
