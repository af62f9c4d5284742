// The sum of exponentials of a row, and the outputs that follow from it.
#pragma once
#include "tile.cuh"

namespace ce {

/// Logits as they are.
struct Identity {
  CE_DEVICE float of(float x) const { return x; }
};

/// Adds exp2(factor (u - max)) of the tile to the part's sum, where u are the transformed elements of the
/// first input.
template <class Transform, class Part, class Tile>
CE_DEVICE void add_exponentials(Part& part, const Tile& tile, const Transform& transform, float factor) {
  constexpr int vec = Tile::vec, count = sizeof(tile.elements) / sizeof(tile.elements[0]);
  const Exponent exponent(part.max, factor);
  const auto sum_of = [&](const auto& term) {
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      float x[vec];
      tile.elements[i].of_input[0].values(x);
#pragma unroll
      for (int k = 0; k < vec; ++k) x[k] = transform.of(x[k]);
      float partial = 0.f;
#pragma unroll
      for (int k = 0; k < vec; ++k) partial += term(x[k]);
      sum += partial;
    }
    return sum;
  };
  part.sum += exponent.fused ? sum_of([&](float x) { return exponent.of(x); })
                             : sum_of([&](float x) { return exponent.apart(x); });
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
  /// visit(value of an element as a function) in the fastest form that is exact.
  template <class T, class Visit>
  CE_DEVICE void visit(const Visit& visit) const {
    if (sizeof(T) == 2 && folded)
      visit([this](float x) { return exp2(multiply_add(x, c, -s)); });
    else
      visit([this](float x) { return exp2((x - max) * c) * amplitude; });
  }
};

}  // namespace ce
