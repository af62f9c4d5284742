// The sum of exponentials of a row, and the outputs that follow from it.
#pragma once
#include "tile.cuh"

namespace ce {

/// Logits as they are.
struct Identity {
  CE_DEVICE float of(float x) const { return x; }
};

/// Sum of the terms of a tile, where u are the transformed elements of its first input.
/// \tparam fused  every term is exponent.of(u), else exponent.apart(u)
template <bool fused, class Transform, class Tile>
CE_DEVICE float sum_of_terms(const Tile& tile, const Transform& transform, const Exponent& exponent) {
  constexpr int vec = Tile::vec, count = sizeof(tile.elements) / sizeof(tile.elements[0]);
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    float x[vec], partial = 0.f;
    tile.elements[i].of_input[0].values(x);
#pragma unroll
    for (int k = 0; k < vec; ++k) {
      const float u = transform.of(x[k]);
      partial += fused ? exponent.of(u) : exponent.apart(u);
    }
    sum += partial;
  }
  return sum;
}

/// Adds exp2(factor (u - max)) of the tile to the part's sum.
template <class Transform, class Part, class Tile>
CE_DEVICE void add_exponentials(Part& part, const Tile& tile, const Transform& transform, float factor) {
  const Exponent exponent(part.max, factor);
  part.sum += exponent.fused ? sum_of_terms<true>(tile, transform, exponent)
                             : sum_of_terms<false>(tile, transform, exponent);
}

/// amplitude x exp2(factor (x - max)) of single elements, when maximum and amplitude are known.
struct Probability {
  float max, c;  ///< of exp2(c (x - max)) x amplitude
  float amplitude;
  float s;      ///< of exp2(c x - s), which is the same
  bool folded;  ///< it is as exact as an element of 16 bits can tell

  /// \param sum  of the row with respect to its maximum
  template <class T>
  CE_DEVICE static Probability of(float max, float sum, float factor, float scale) {
    Probability p{finite_or_zero(max), factor, scale / sum, 0.f, false};
    if constexpr (sizeof(T) == 2) {
      p.s = p.max * factor - log(p.amplitude) * log2_e;  // amplitude <= 0 or NaN: NaN or infinite
      p.folded = absolute(p.s) < 256.f;
    }
    return p;
  }
  /// Of elements of type T, in the fastest form that is exact.
  template <class T, int n>
  CE_DEVICE void apply(float (&x)[n]) const {
    if (sizeof(T) == 2 && folded) {
#pragma unroll
      for (int k = 0; k < n; ++k) x[k] = exp2(multiply_add(x[k], c, -s));
    } else {
#pragma unroll
      for (int k = 0; k < n; ++k) x[k] = exp2((x[k] - max) * c) * amplitude;
    }
  }
};

}  // namespace ce
