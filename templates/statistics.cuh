// What softmax and cross entropy need to know of a row: its maximum and the sum of exp(x - maximum), joined
// from parts by the online recurrence (Milakov and Gimelshein, 2018, "Online normalizer calculation for softmax"):
//
//     (m1, s1) + (m2, s2) = (m, s1 exp(m1 - m) + s2 exp(m2 - m))  with  m = max(m1, m2)
//
// A part that has seen only -infinity is (-infinity, 0). +infinity and NaN make the sum NaN, which then
// reaches every result of the row, as in PyTorch.
#pragma once
#include "device.cuh"

namespace ce {

constexpr float log2_e = 1.4426950408889634f;

struct Statistics {
  float max, sum;
};

/// exp(x - shift), exactly 1 where they are equal.
CE_DEVICE float exp_minus(float x, float shift) { return exp2((x - shift) * log2_e); }

/// The maximum as something that can be subtracted: -infinity would turn into NaN.
CE_DEVICE float shift_of(float max) { return max == -infinity() ? 0.f : max; }

/// The same part with respect to a larger maximum.
CE_DEVICE float rescaled(const Statistics& part, float max) {
  return part.sum * exp_minus(part.max, shift_of(max));
}

/// Adds n logits to the part that a thread has seen.
template <int n>
CE_DEVICE void extend(Statistics& seen, const float (&x)[n]) {
  float max = seen.max;
#pragma unroll
  for (int i = 0; i < n; ++i) max = maximum(max, x[i]);
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < n; ++i) sum += exp_minus(x[i], shift_of(max));
  seen = {max, rescaled(seen, max) + sum};
}

/// Over `width` neighbouring lanes; every lane gets the result.
template <int width = lanes>
CE_DEVICE float warp_max(float x) {
#pragma unroll
  for (int mask = width / 2; mask > 0; mask /= 2) x = maximum(x, shuffle_xor(x, mask));
  return x;
}
template <int width = lanes>
CE_DEVICE float warp_sum(float x) {
#pragma unroll
  for (int mask = width / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}
template <int width = lanes>
CE_DEVICE Statistics warp_join(const Statistics& part) {
  const float max = warp_max<width>(part.max);
  return {max, warp_sum<width>(rescaled(part, max))};
}

/// Over the block; every thread gets the result. Orders the memory accesses before it with those after it, for all
/// threads of the block.
template <int warps>
CE_DEVICE Statistics block_join(const Statistics& part, Statistics (&shared)[warps]) {
  const Statistics own = warp_join(part);
  if constexpr (warps == 1) {
    warp_barrier();
    return own;
  }
  if (lane_index() == 0) shared[warp_index()] = own;
  block_barrier();
  return warp_join<warps>(shared[lane_index() % warps]);
}

}  // namespace ce
