// Over groups of `width` neighbouring lanes; every lane gets the result, which has a fixed order.
#pragma once
#include "device/device.cuh"

namespace ce {

template <int width = lanes>
CE_DEVICE float warp_max(float x) {
#pragma unroll
  for (int mask = width / 2; mask > 0; mask /= 2) x = maximum(x, shuffle_xor(x, mask));
  return x;
}
template <int width = lanes>
CE_DEVICE int warp_min(int x) {
#pragma unroll
  for (int mask = width / 2; mask > 0; mask /= 2) {
    const int other = shuffle_xor(x, mask);
    x = other < x ? other : x;
  }
  return x;
}
template <int width = lanes, class T>
CE_DEVICE T warp_sum(T x) {
#pragma unroll
  for (int mask = width / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}

}  // namespace ce
