// Converts elements to another dtype: gradients that were summed in f32, and f32 gradients of logits for 16-bit
// products.
//
// Each thread processes vectors of four elements, with all loads before its first store. Elements that are not aligned
// to such vectors are processed one by one.
//
// Moves 1 read + 1 write, and is bound by the memory.
#pragma once
#include "linear_arguments.cuh"
#include "row/row.cuh"

using Arguments = ce::LinearArguments;

CE_KERNEL(ce_linear_convert, ce::problem::threads) {
  using namespace ce;
  using From = problem::From;
  using To = problem::To;
  constexpr int vec = problem::vec, unroll = problem::unroll, step = problem::threads * unroll;

  const From* const input = static_cast<const From*>(arguments.input);
  To* const output = static_cast<To*>(arguments.output);
  const bool aligned = reinterpret_cast<uint64>(input) % (vec * sizeof(From)) == 0 &&
                       reinterpret_cast<uint64>(output) % (vec * sizeof(To)) == 0;
  const int64 vectors = aligned ? arguments.rows / vec : 0;
  for (int64 first = block_index() * step; first < vectors; first += block_count() * step) {
    Vector<From, vec> data[unroll];
#pragma unroll
    for (int i = 0; i < unroll; ++i)
      if (const int64 v = first + i * problem::threads + thread_index(); v < vectors)
        data[i] = Vector<From, vec>::template read<Load::cs>(input + v * vec);
#pragma unroll
    for (int i = 0; i < unroll; ++i)
      if (const int64 v = first + i * problem::threads + thread_index(); v < vectors) {
        float x[vec];
        data[i].values(x);
        Vector<To, vec>::of(x).template write<Store::wb>(output + v * vec);
      }
  }
  for (int64 at = vectors * vec + block_index() * problem::threads + thread_index(); at < arguments.rows;
       at += block_count() * problem::threads)
    store_element<Store::wb>(output + at, from_float<To>(to_float(load_element<Load::ca>(input + at))));
}
