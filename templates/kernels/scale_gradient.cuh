// Multiplies a gradient by the gradient of the loss, which has become known after it. A backward uses it for a gradient
// that was written together with the loss.
//
// The factor is in device memory. It is usually 1: then every block returns after reading it. So there are no more
// blocks than run at the same time; each processes one tile after the other, with all loads of a thread before its
// first store. The first block also processes the elements before the first 16-byte boundary, and those that fill no
// vector at the end.
//
// A gradient with gaps consists of rows of Arguments::classes elements: a tile is `unroll` elements of each lane of a
// warp, all of one row, and a warp processes one tile after the other.
//
// Moves 1 read + 1 write, like a copy, and is bound by the memory.
#pragma once
#include "row/row.cuh"

CE_KERNEL(ce_scale_gradient, ce::problem::threads) {
  using namespace ce;
  using Element = problem::Element;
  constexpr int vec = 16 / int(sizeof(Element)), unroll = problem::unroll;
  using Vec = Vector<Element, vec>;

  const float factor =
      to_float(load_element<Load::ca>(static_cast<const problem::Upstream*>(arguments.upstream)));
  if (factor == 1.f) return;
  const auto scaled = [&](Element x) { return from_float<Element>(to_float(x) * factor); };

  Element* const grad = static_cast<Element*>(arguments.output);
  if constexpr (problem::strided) {
    constexpr int tile = lanes * unroll, warps = problem::threads / lanes;
    const int64 columns = arguments.classes, stride = arguments.output_layout.column;
    const int64 tiles = (columns + tile - 1) / tile;
    for (int64 i = block_index() * warps + warp_index(); i < arguments.rows * tiles;
         i += block_count() * warps) {
      Element* const row = grad + row_offset(arguments, arguments.output_layout, i / tiles);
      const int64 first = i % tiles * tile + lane_index();
      Element data[unroll];
#pragma unroll
      for (int k = 0; k < unroll; ++k)
        if (const int64 column = first + k * lanes; column < columns)
          data[k] = load_element<Load::cs>(row + column * stride);
#pragma unroll
      for (int k = 0; k < unroll; ++k)
        if (const int64 column = first + k * lanes; column < columns)
          store_element<Store::cs>(row + column * stride, scaled(data[k]));
    }
    return;
  }

  const int64 elements = arguments.rows;
  const int64 before = int64(-reinterpret_cast<uint64>(grad) % 16 / sizeof(Element));
  const int64 prologue = before < elements ? before : elements;
  const int64 vectors = (elements - prologue) / vec, epilogue = prologue + vectors * vec;
  Element* const body = grad + prologue;

  constexpr int step = problem::threads * unroll;
  for (int64 first = block_index() * step; first < vectors; first += block_count() * step) {
    Vec data[unroll];
#pragma unroll
    for (int i = 0; i < unroll; ++i)
      if (const int64 v = first + i * problem::threads + thread_index(); v < vectors)
        data[i] = Vec::template read<Load::cs>(body + v * vec);
#pragma unroll
    for (int i = 0; i < unroll; ++i)
      if (const int64 v = first + i * problem::threads + thread_index(); v < vectors) {
        float x[vec];
        data[i].values(x);
#pragma unroll
        for (int k = 0; k < vec; ++k) x[k] *= factor;
        Vec::of(x).template write<Store::cs>(body + v * vec);
      }
  }
  if (block_index() == 0) {
    const int64 at = thread_index();
    if (at < prologue) store_element<Store::wb>(grad + at, scaled(load_element<Load::ca>(grad + at)));
    if (at < elements - epilogue)
      store_element<Store::wb>(grad + epilogue + at, scaled(load_element<Load::ca>(grad + epilogue + at)));
  }
}
