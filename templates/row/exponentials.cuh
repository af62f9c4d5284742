// The sum of exponentials of a row, and the outputs derived from it.
#pragma once
#include "row/tile.cuh"

namespace ce {

/// Logits without a transform.
struct Identity {
  static constexpr bool bounded = false;
  /// \tparam fused  every exponent is exponent.exponent(x), else exponent.exponent_apart(x)
  template <bool fused, int n>
  CE_DEVICE void to_exponents(const Vector<problem::Element, n>& vector, float (&x)[n],
                              const Exponent& exponent) const {
    vector.values(x);
#pragma unroll
    for (int k = 0; k < n; ++k) x[k] = fused ? exponent.exponent(x[k]) : exponent.exponent_apart(x[k]);
  }
  template <class Tile>
  CE_DEVICE bool near_zero(const Tile&) const {
    return true;
  }
  CE_DEVICE Identity simple() const { return {}; }
  CE_DEVICE static bool simple_serves(const Exponent& exponent) { return exponent.fused == narrow; }
  template <class Tile>
  CE_DEVICE int first_nan(const Tile& tile) const {
    return first_where(tile, [](float x) { return x != x; });
  }
};

/// bf16 logits without a transform, except those so far below the maximum that their exponential is 0: they are raised
/// to a bound with a finite exponent, two by one instruction. If exponents are fused, products of logits and maxima
/// with the factor are far below the bound's.
template <class T>
struct FiniteExponents {
  static constexpr bool are_finite = true;
  uint32 bound;

  template <bool, int n>
  CE_DEVICE void to_exponents(Vector<T, n> vector, float (&x)[n], const Exponent& exponent) const {
#pragma unroll
    for (int i = 0; i < vector.words; ++i) vector.data.word[i] = at_least_pair<T>(vector.data.word[i], bound);
    vector.values(x);
#pragma unroll
    for (int k = 0; k < n; ++k) x[k] = exponent.exponent(x[k]);
  }
};
/// The bound in the form of such a vector.
template <class T, int n>
CE_DEVICE FiniteExponents<T> finite_exponents(const Vector<T, n>&, const Exponent& exponent) {
  const float bound = -0x1p40f / exponent.c;
  return {pack<T>(bound, bound)};
}

/// Stands for no column.
constexpr int nowhere = -0x40000000;

/// The visitor of add_exponentials() if its caller does not need the exponents.
struct NoVisitor {};

/// The sum of the terms of a tile, where u are the transformed elements of its first input; the transform may overwrite
/// the input.
/// \tparam fused    as in the transform
/// \tparam checked  leaves out elements that are not inside, and the column `skipped`
/// \param stats    receives the terms in its moment, if it has one
template <bool fused, bool checked, class Stats, class Transform, class Tile, class Also>
CE_DEVICE float sum_of_terms(Stats& stats, Tile& tile, const Transform& transform, const Exponent& exponent,
                             int skipped, const Also& also) {
  constexpr int vec = Tile::vec, count = sizeof(tile.elements) / sizeof(tile.elements[0]);
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if constexpr (checked)
      if (!tile.inside(i)) continue;
    float t[vec];
    transform.template to_exponents<fused>(tile.elements[i].of_input[0], t, exponent);
    if constexpr (!is_same<Also, NoVisitor>) also(i, t);
    if constexpr (checked) {
      const int position = skipped - tile.column_of(i);
      if (position >= 0 && position < vec) {
#pragma unroll
        for (int k = 0; k < vec; ++k) t[k] = k == position ? -infinity() : t[k];
      }
    }
    float power[vec];
#pragma unroll
    for (int k = 0; k < vec; ++k) power[k] = Exponent::power(t[k]);
    float partial = power[0];
#pragma unroll
    for (int k = 1; k < vec; ++k) partial += power[k];
    if constexpr (Stats::moments) {
      const auto term = [&](int k) {
        return requires { Transform::are_finite; }
        ? power[k] * t[k] : moment_of(power[k], t[k]);
      };
      float moment = term(0);
#pragma unroll
      for (int k = 1; k < vec; ++k) moment += term(k);
      stats.moment += moment;
    }
    sum = i == 0 && !checked ? partial : sum + partial;
  }
  return sum;
}

/// Adds the exponentials of factor (u - max) of the tile to the sum of the statistics. Elements that must not count are
/// -infinity. If the transform makes these finite, or there is a visitor, elements that are not inside and the column
/// `skipped` are left out explicitly: most tiles have neither these nor logits that are not simple, and their vectors
/// can be interleaved.
/// \param also  called as also(i, exponents) for each vector that is inside, including the skipped column
/// \return      whether all logits were simple
template <class Transform, class Stats, class Tile, class Also>
CE_DEVICE bool add_exponentials(Stats& stats, Tile& tile, const Transform& transform, float factor,
                                int skipped, const Also& also) {
  constexpr bool checked = Transform::bounded || !is_same<Also, NoVisitor>;
  const Exponent exponent(stats.max, factor);
  const bool are_simple = Tile::is_plain || transform.near_zero(tile);
  const auto sum = [&] {
    if constexpr (Tile::is_plain)
      return sum_of_terms<narrow, false>(stats, tile, transform.simple(), exponent, skipped, also);
    if constexpr (checked)
      if (const auto simple = transform.simple(); are_simple && transform.simple_serves(exponent)) {
        if (tile.full() && !tile.holds(skipped))
          return sum_of_terms<narrow, false>(stats, tile, simple, exponent, skipped, also);
        if constexpr (Transform::bounded)
          return sum_of_terms<narrow, true>(stats, tile, simple, exponent, skipped, also);
      }
    if constexpr (Transform::bounded)
      return sum_of_terms<true, checked>(stats, tile, transform, exponent, skipped, also);
    if constexpr (Stats::moments && is_same<problem::Element, bf16> && Tile::vec > 1 && !checked)
      if (exponent.fused)
        return sum_of_terms<true, false>(
            stats, tile, finite_exponents(tile.elements[0].of_input[0], exponent), exponent, skipped, also);
    return exponent.fused ? sum_of_terms<true, checked>(stats, tile, transform, exponent, skipped, also)
                          : sum_of_terms<false, checked>(stats, tile, transform, exponent, skipped, also);
  };
  stats.sum += sum();
  if constexpr (Stats::indices)
    if (stats.sum != stats.sum) stats.observe_nan(transform.first_nan(tile));
  return are_simple;
}
/// For logits without a transform.
template <class Stats, class Tile>
CE_DEVICE bool add_exponentials(Stats& stats, Tile& tile, float factor) {
  return add_exponentials(stats, tile, Identity{}, factor, nowhere, NoVisitor{});
}

/// amplitude x the exponential of factor (x - max), for single elements, once maximum and amplitude are known.
struct Probability {
  float max, c;
  float amplitude;
  float low;    ///< f32: rounding error of the amplitude
  float s;      ///< 16 bits: exp2(c x - s) is equal ...
  bool folded;  ///< ... within the precision of 16 bits

  /// \param sum  sum of the row relative to its maximum, and `share` 1 / sum, rounded
  template <class T>
  CE_DEVICE static Probability of(float max, float sum, float share, float factor, float scale) {
    Probability p{finite_or_zero(max), factor, scale * share, 0.f, 0.f, false};
    if constexpr (sizeof(T) == 4) {
      p.low = multiply_add(-p.amplitude, sum, scale) * share;
    } else {
      p.s = p.max * factor - log2(p.amplitude);  // amplitude <= 0 or NaN: NaN or infinite
      p.folded = absolute(p.s) < 256.f;
    }
    return p;
  }
  /// Prepares apply_with_logarithm(): 16 bits have the logarithm in `s`.
  template <class T>
  CE_DEVICE void set_logarithm(float log_sum) {
    if constexpr (sizeof(T) == 4) s = log_sum;
  }
  /// probability x (offset + slope x ln probability), if the amplitude is 1; 0 if the probability is 0. Like apply().
  template <bool is_fast, class T, int n>
  CE_DEVICE void apply_with_logarithm(float (&x)[n], float offset, float slope) const {
#pragma unroll
    for (int k = 0; k < n; ++k) {
      if constexpr (sizeof(T) == 4) {
        const float exponent = (x[k] - max) * c;
        x[k] = Exponential(exponent).times(amplitude, low) *
               multiply_add(slope, at_least(exponent - s, -256.f), offset);
      } else {
        const float t = is_fast ? multiply_add(x[k], c, -s) : (x[k] - max) * c + log2(amplitude);
        x[k] = exp2(t) * multiply_add(slope * ln_2, at_least(t, -256.f), offset);
      }
    }
  }
  /// For elements of type T.
  /// \tparam is_fast  fast<T>() has returned true
  template <bool is_fast, class T, int n>
  CE_DEVICE void apply(float (&x)[n]) const {
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int k = 0; k < n; ++k) x[k] = Exponential((x[k] - max) * c).times(amplitude, low);
    } else if constexpr (is_fast) {
#pragma unroll
      for (int k = 0; k < n; ++k) x[k] = exp2(multiply_add(x[k], c, -s));
    } else {
#pragma unroll
      for (int k = 0; k < n; ++k) x[k] = exp2((x[k] - max) * c) * amplitude;
    }
  }
  template <class T>
  CE_DEVICE bool fast() const {
    return sizeof(T) == 4 || folded;
  }
};

}  // namespace ce
