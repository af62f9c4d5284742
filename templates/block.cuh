// Variant `block`: the row in the registers of one block.
//
// One block of `warps` warps per row. Every thread loads all of its vectors at once, so the whole row is in flight,
// and keeps them in registers: the logits are read from memory exactly once and the outputs written exactly once.
//
//     load all vectors  ->  maximum and sum of the thread, the warp, the block  ->  outputs from the same registers
//
// Wins wherever the row fits: while one block reduces, the others on the same multiprocessor load and store.
// At 1024 threads with little room for a second block (f32 beyond 16384 columns) the phases stop overlapping.
//
// axis warps = 1 2 4 8 16 32
// axis vec = 1 2 4 8
// axis load = ca cg cs
// axis store = wb cg cs wt
//
// Ledger
//   1  registers, one barrier; the warp's maximum is found before the exponentials, so that each thread rescales once
//      and not at each of the five steps of the reduction
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
  using Vec = Vector<Element, vec>;
  using RowCut = Cut<Element, problem::columns, vec, problem::aligned>;
  constexpr int per_thread = (RowCut::most_vectors + threads - 1) / threads;
  static_assert(sizeof(Shared) <= config::shared_bytes);

  const int64 row = block_index();
  const Element* in = row_start(static_cast<const Element*>(arguments.input), row, arguments.input_stride);
  Element* out = row_start(static_cast<Element*>(arguments.output), row, arguments.output_stride);
  const RowCut cut(in);
  const int edge = cut.edge_column();
  // Only the last vector of a thread can lie beyond the row.
  const auto inside = [&](int i) {
    return (i < per_thread - 1) || (RowCut::exact && RowCut::most_vectors % threads == 0) ||
           thread_index() + i * threads < cut.vectors;
  };

  Epilogue epilogue(arguments, row, thread_index() == 0);
  if (float value; epilogue.constant(value)) {
    if constexpr (Epilogue::has_output) fill_row<config::store, threads>(out, cut, 0, cut.vectors, edge, value);
    return;
  }

  Vec data[per_thread > 0 ? per_thread : 1];
#pragma unroll
  for (int i = 0; i < per_thread; ++i)
    data[i] = inside(i)
                  ? Vec::template read<config::load>(in + cut.column_of(thread_index() + i * threads))
                  : nothing<Element, vec>();
  float edge_value[1] = {-infinity()};
  if (edge >= 0) edge_value[0] = to_float(load_element<config::load>(in + edge));

  float max = edge_value[0];
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    float x[vec];
    data[i].values(x);
#pragma unroll
    for (int k = 0; k < vec; ++k) max = maximum(max, x[k]);
  }
  max = warp_max(max);
  float sum = RowCut::exact ? 0.f : exp_minus(edge_value[0], shift_of(max));
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    float x[vec];
    data[i].values(x);
    float part = 0.f;
#pragma unroll
    for (int k = 0; k < vec; ++k) part += exp_minus(x[k], shift_of(max));
    sum += part;
  }
  epilogue.settle(block_join<config::warps>({max, sum}, shared_memory<Shared>().partial));

  if constexpr (Epilogue::has_output) {
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
      float x[vec];
      data[i].values(x);
      const int column = cut.column_of(thread_index() + i * threads);
      epilogue.apply(x, column);
      if (inside(i)) Vec::of(x).template write<config::store>(out + column);
    }
    if (edge >= 0) {
      epilogue.apply(edge_value, edge);
      store_element<config::store>(out + edge, from_float<Element>(edge_value[0]));
    }
  }
}
