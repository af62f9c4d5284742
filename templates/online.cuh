// Variant `online`: several passes over the row in tiles, with the online softmax recurrence.
//
// One block of `warps` warps per row. The first pass reads tile after tile and keeps a running maximum and sum in each
// thread; nothing of the row stays on chip, so any width fits. The second pass reads the row again, the last tile
// first, because that is the one that L2 still holds, and writes the outputs. A loss alone needs no second pass.
//
//     for each tile: load `unroll` vectors, join them into (max, sum)  ->  block  ->  for each tile, backwards: outputs
//
// Moves 2 reads + 1 write where the block variant moves 1 + 1, less what L2 gives back. Wins where rows are too wide
// for registers, and for losses without gradient.
//
// axis warps = 1 2 4 8 16 32
// axis vec = 1 2 4 8
// axis tile = 256 512 1024 2048 4096 8192
// axis load = ca cg cs
// axis store = wb cg cs wt
//
// Ledger
//   1  per-thread recurrence over tiles, one block reduction at the end, second pass backwards
#pragma once
#include "row.cuh"
#include "statistics.cuh"

namespace ce {

struct Shared {
  Statistics partial[config::warps];
};

}  // namespace ce

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  using Element = problem::Element;
  constexpr int vec = config::vec, threads = lanes * config::warps;
  constexpr int unroll = config::tile / (threads * vec);
  using Vec = Vector<Element, vec>;
  using RowCut = Cut<Element, problem::columns, vec, problem::aligned>;
  static_assert(sizeof(Shared) <= config::shared_bytes);

  const int64 row = block_index();
  const Element* in = row_start(static_cast<const Element*>(arguments.input), row, arguments.input_stride);
  Element* out = row_start(static_cast<Element*>(arguments.output), row, arguments.output_stride);
  const RowCut cut(in);
  const int edge = cut.edge_column();

  Epilogue epilogue(arguments, row, thread_index() == 0);
  if (float value; epilogue.constant(value)) {
    if constexpr (Epilogue::has_output) fill_row<config::store, threads>(out, cut, 0, cut.vectors, edge, value);
    return;
  }

  const auto read_tile = [&](int first, float(&x)[unroll * vec]) {
    Vec data[unroll];
#pragma unroll
    for (int i = 0; i < unroll; ++i) {
      const int v = first + i * threads;
      data[i] = v < cut.vectors ? Vec::template read<config::load>(in + cut.column_of(v)) : nothing<Element, vec>();
    }
#pragma unroll
    for (int i = 0; i < unroll; ++i) {
      float part[vec];
      data[i].values(part);
#pragma unroll
      for (int k = 0; k < vec; ++k) x[i * vec + k] = part[k];
    }
  };

  float edge_value[1] = {-infinity()};
  if (edge >= 0) edge_value[0] = to_float(load_element<config::load>(in + edge));
  Statistics seen = {-infinity(), 0.f};
  extend(seen, edge_value);
  int first = thread_index();
  for (; first - thread_index() < cut.vectors; first += unroll * threads) {
    float x[unroll * vec];
    read_tile(first, x);
    extend(seen, x);
  }
  epilogue.settle(block_join<config::warps>(seen, shared_memory<Shared>().partial));

  if constexpr (Epilogue::has_output) {
    for (first -= unroll * threads; first >= 0; first -= unroll * threads) {
      float x[unroll * vec];
      read_tile(first, x);
#pragma unroll
      for (int i = 0; i < unroll; ++i) {
        const int v = first + i * threads, column = cut.column_of(v);
        float part[vec];
#pragma unroll
        for (int k = 0; k < vec; ++k) part[k] = x[i * vec + k];
        epilogue.apply(part, column);
        if (v < cut.vectors) Vec::of(part).template write<config::store>(out + column);
      }
    }
    if (edge >= 0) {
      epilogue.apply(edge_value, edge);
      store_element<config::store>(out + edge, from_float<Element>(edge_value[0]));
    }
  }
}
