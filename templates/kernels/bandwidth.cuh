// Variant `bandwidth`: nothing but memory traffic, to find the ceiling that every other kernel is held against.
//
// Every block moves one tile of a dense tensor: operation `copy` reads and writes it, `add` reads two and
// writes their sum, `read` folds it into one word per block with exclusive or (a write of 4 bytes per tile,
// not counted).
//
// axis warps = 8 16
// axis vec = 4 8
// axis tile = 4096 8192
// axis load = ca cs evict_last
// axis store = wb cs
#pragma once
#include "arguments.cuh"
#include "row/row.cuh"

namespace ce {

struct Shared {
  uint32 partial[config::warps];
};

}  // namespace ce

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  using Element = problem::Element;
  constexpr int vec = config::vec, threads = lanes * config::warps;
  constexpr int unroll = config::tile / (threads * vec);
  using Vec = Vector<Element, vec>;
  static_assert(sizeof(Shared) <= config::shared_bytes);

  const int64 elements = arguments.rows * problem::columns;
  const int64 first = block_index() * config::tile + thread_index() * vec;
  const auto read = [&](const void* tensor, Vec(&data)[unroll]) {
#pragma unroll
    for (int i = 0; i < unroll; ++i) {
      const int64 at = first + i * threads * vec;
      data[i] =
          at < elements ? Vec::template read<config::load>(static_cast<const Element*>(tensor) + at) : Vec{};
    }
  };
  Vec data[unroll];
  read(arguments.input, data);
  if constexpr (problem::inputs == 2) {
    Vec other[unroll];
    read(arguments.second, other);
#pragma unroll
    for (int i = 0; i < unroll; ++i) {
      float x[vec], y[vec];
      data[i].values(x);
      other[i].values(y);
#pragma unroll
      for (int k = 0; k < vec; ++k) x[k] += y[k];
      data[i] = Vec::of(x);
    }
  }
  if constexpr (problem::writes) {
    Element* out = static_cast<Element*>(arguments.output);
#pragma unroll
    for (int i = 0; i < unroll; ++i) {
      const int64 at = first + i * threads * vec;
      if (at < elements) data[i].template write<config::store>(out + at);
    }
  } else {
    uint32 fold = 0;
#pragma unroll
    for (int i = 0; i < unroll; ++i)
#pragma unroll
      for (int w = 0; w < Vec::words; ++w) fold ^= data[i].data.word[w];
#pragma unroll
    for (int mask = lanes / 2; mask > 0; mask /= 2) fold ^= shuffle_xor(fold, mask);
    Shared& shared = shared_memory<Shared>();
    if (lane_index() == 0) shared.partial[warp_index()] = fold;
    block_barrier();
    if (thread_index() == 0) {
      for (int warp = 1; warp < config::warps; ++warp) fold ^= shared.partial[warp];
      static_cast<uint32*>(arguments.output)[block_index()] = fold;
    }
  }
}
