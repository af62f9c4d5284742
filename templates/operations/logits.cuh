// Logits under a soft cap (Gemma 2, 2024), which cross entropy computes from the logits x first:
//
//     z = cap tanh(scale x / cap)
//
// Kernels work on u = tanh(scale x / cap), with z = cap u. Sources of problems with a cap include this file before
// their operation; without a cap, scaled_logits.cuh is used.
#pragma once
#include "operations/scaled_logits.cuh"
#include "row/exponentials.cuh"

namespace ce {

/// u = tanh(y), with two formulas.
///
/// Near 0 it is y + y^3 P(y^2), with P a minimax polynomial: only multiply-adds, no exponential. Most logits of a
/// trained model are there.
///
/// Elsewhere, with e = exp(-2 |y|) and q = 2 / (1 + e), |u| = 1 - e q and 1 - u^2 = e q^2, without cancellation. In 16
/// bits the difference from 1 - u^2 is not visible; in f32 only the target has that slope, since for the others only u
/// is kept.
template <bool is_narrow>
struct HyperbolicTangentOf {
  /// The polynomial has an error of 3e-6 (16 bits) or 4e-8 for |y| below this bound.
  static constexpr float near = is_narrow ? 0.6f : 0.55f;

  /// Number of terms of P. coefficient(i) belongs to (y^2)^i.
  static constexpr int terms = is_narrow ? 3 : 4;
  CE_DEVICE static constexpr float coefficient(int i) {
    switch (i) {
      case 0: return is_narrow ? -0.3331907414f : -0.3333294690f;
      case 1: return is_narrow ? 0.1308641695f : 0.1332072467f;
      case 2: return is_narrow ? -0.0413877662f : -0.0526718199f;
      default: return 0.0164375901f;
    }
  }

  CE_DEVICE static float near_zero(float y) {
    const float s = y * y;
    float p = coefficient(terms - 1);
#pragma unroll
    for (int i = terms - 2; i >= 0; --i) p = multiply_add(p, s, coefficient(i));
    return multiply_add(p * s, y, y);
  }
  CE_DEVICE static float slope_of(float u) { return multiply_add(-u, u, 1.f); }

  CE_DEVICE static Transformed of(float y) {
    const float u = near_zero(y);
    const float e = exp2(-2.f * log2_e * absolute(y)), q = reciprocal(multiply_add(0.5f, e, 0.5f));
    const float far = with_sign(multiply_add(-e, q, 1.f), y);
    if (absolute(y) < near) return {u, slope_of(u)};
    return {far, is_narrow ? slope_of(far) : e * q * q};
  }
};
using HyperbolicTangent = HyperbolicTangentOf<narrow>;

/// The transform with a soft cap, for logits x near 0: a factor times tanh(r x) = x Q(x^2), with r = scale / cap and
/// the factor included in the coefficients of Q.
struct Quotient {
  static constexpr int terms = HyperbolicTangent::terms;
  float first, others[terms];

  CE_DEVICE Quotient(float ratio, float factor) : first(ratio * factor) {
    float power = first;
#pragma unroll
    for (int i = 0; i < terms; ++i) {
      power *= ratio * ratio;
      others[i] = HyperbolicTangent::coefficient(i) * power;
    }
  }
  CE_DEVICE float at(float x) const {
    const float s = x * x;
    float p = others[terms - 1];
#pragma unroll
    for (int i = terms - 2; i >= 0; --i) p = multiply_add(p, s, others[i]);
    return multiply_add(p, s, first);
  }
  template <int n>
  CE_DEVICE void multiply(float (&x)[n]) const {
#pragma unroll
    for (int k = 0; k < n; ++k) x[k] *= at(x[k]);
  }
};

/// With exponents as large as a cap, an entropy near 0 would be lost to rounding: so they are relative to the row's
/// maximum. The products of linear layers do not have this problem, and have a maximum anyway.
template <class Problem>
constexpr bool sums_moments = false;
template <class Problem>
requires requires { Problem::entropy_upstream; }
constexpr bool sums_moments<Problem> =
    !Problem::from_lse && (Problem::entropy_out || Problem::entropy_upstream);
constexpr bool entropy_needs_maximum = sums_moments<problem>;

/// The transform of a tile whose logits are all near 0.
struct NearZero {
  static constexpr bool bounded = true;
  float ratio;  ///< scale / cap

  template <bool, int n, class Exponent>
  CE_DEVICE void to_exponents(Vector<problem::Element, n>& vector, float (&x)[n],
                              const Exponent& exponent) const {
    vector.values(x);
    const Quotient quotient(ratio, exponent.c);
    if constexpr (problem::gradient) {
      quotient.multiply(x);
      vector = Vector<f16, n>::of(x).template as<problem::Element>();
      if constexpr (entropy_needs_maximum) {
#pragma unroll
        for (int k = 0; k < n; ++k) x[k] -= exponent.s;
      }
    } else {
#pragma unroll
      for (int k = 0; k < n; ++k) x[k] = multiply_add(x[k], quotient.at(x[k]), -exponent.s);
    }
  }
};

/// The larger magnitude of each two elements, with arbitrary signs.
template <class T, int n>
CE_DEVICE Vector<T, n> larger_magnitudes(const Vector<T, n>& a, const Vector<T, n>& b) {
  Vector<T, n> v;
#pragma unroll
  for (int i = 0; i < v.words; ++i) {
    if constexpr (sizeof(T) == 4) {
      const T element = maximum(absolute(reinterpret_cast<const T&>(a.data.word[i])),
                                absolute(reinterpret_cast<const T&>(b.data.word[i])));
      v.data.word[i] = reinterpret_cast<const uint32&>(element);
    } else {
      v.data.word[i] = larger_magnitude_pair<T>(a.data.word[i], b.data.word[i]);
    }
  }
  return v;
}
template <class T, int n>
CE_DEVICE float largest_magnitude(const Vector<T, n>& vector) {
  if constexpr (sizeof(T) == 4) {
    float x[n];
    vector.values(x);
    float max = absolute(x[0]);
#pragma unroll
    for (int i = 1; i < n; ++i) max = maximum(max, absolute(x[i]));
    return max;
  } else {
    uint32 max = vector.data.word[0];
#pragma unroll
    for (int i = 1; i < vector.words; ++i) max = larger_magnitude_pair<T>(max, vector.data.word[i]);
    const Float2 pair = unpack<T>(max);
    return maximum(absolute(pair.low), absolute(pair.high));
  }
}
/// Overloads for single elements.
template <class T>
requires(sizeof(T) == 2) CE_DEVICE float largest_magnitude(const Vector<T, 1>& vector) {
  return absolute(to_float(vector.data));
}
template <class T>
requires(sizeof(T) == 2) CE_DEVICE Vector<T, 1> larger_magnitudes(const Vector<T, 1>& a,
                                                                  const Vector<T, 1>& b) {
  return largest_magnitude(a) > largest_magnitude(b) ? a : b;
}

/// The largest |x| inside of the first input; if some are NaN, it may be that of the others.
/// \tparam T  type of the elements, whatever the tile says
template <class T = problem::Element, class Tile>
CE_DEVICE float largest_magnitude_of(const Tile& tile) {
  constexpr int count = sizeof(tile.elements) / sizeof(tile.elements[0]);
  if (tile.full()) {
    auto largest = tile.elements[0].of_input[0].template as<T>();
#pragma unroll
    for (int i = 1; i < count; ++i)
      largest = larger_magnitudes(largest, tile.elements[i].of_input[0].template as<T>());
    return largest_magnitude(largest);
  }
  float largest = 0.f;
#pragma unroll
  for (int i = 0; i < count; ++i)
    if (tile.inside(i))
      largest = maximum(largest, largest_magnitude(tile.elements[i].of_input[0].template as<T>()));
  return largest;
}

/// Logits are put under their cap once, when a tile is first read; the memory of x then holds, for the outputs,
///
///     f32       u = tanh(y)
///     16 bits   c tanh(y) where that is near 0, and c y elsewhere, in f16 whatever the elements are
///
/// with y = scale x / cap and c = cap log2(e). These are the exponents, with a relative error of 2^-11, which f16
/// logits have from the start and bf16 logits exceed. The ranges of the two forms do not overlap, since tanh(y) < 0.9 y
/// if it is not near 0; in that range the slope would be lost to rounding in the first form.
template <>
struct LogitsOf<true> : ScaledLogits {
  static constexpr bool bounded = narrow;  ///< -infinity becomes finite

  CE_DEVICE explicit LogitsOf(const Arguments& arguments) : ScaledLogits(scale_in(arguments)) {
    cap = arguments.amounts[problem::softcap_amount];
    ratio = scale / cap;
    near = near_of(ratio, cap);
    c = product(cap, log2_e);
    per_c = 1.f / c;
    need_maximum = problem::single_class || entropy_needs_maximum || !(cap <= largest_cap_alone);
  }
  CE_DEVICE LogitsOf of_row(float row_scale) const {
    LogitsOf own = *this;
    if constexpr (problem::row_scales) {
      own.scale = scale_of(row_scale);
      own.ratio = own.scale / cap;
      own.near = near_of(own.ratio, cap);
    }
    return own;
  }
  CE_DEVICE float unit() const { return cap; }

  CE_DEVICE Transformed transformed(float x) const {
    if (!are_near_zero(absolute(x))) return HyperbolicTangent::of(ratio * x);
    const float u = x * Quotient(ratio, 1.f).at(x);
    return {u, HyperbolicTangent::slope_of(u)};
  }
  CE_DEVICE float of(float x) const { return transformed(x).u; }
  /// Computed as in f32: a row has one target, and its loss is more precise than 16-bit outputs. (Except for a single
  /// class, which is also the maximum.)
  CE_DEVICE Transformed of_target(float x) const {
    if constexpr (narrow && !problem::single_class) return HyperbolicTangentOf<false>::of(ratio * x);
    return transformed(x);
  }

  /// Whether NearZero is valid for the whole tile, which is not under its cap yet.
  template <class Tile>
  CE_DEVICE bool near_zero(const Tile& tile) const {
    if constexpr (!bounded) return true;
    return are_near_zero(largest_magnitude_of(tile));
  }
  CE_DEVICE NearZero simple() const { return {ratio}; }
  /// Whether NearZero serves for the row's tiles: with a gradient only if no maximum is subtracted, since the exponents
  /// are stored; with entropies if one is subtracted later.
  CE_DEVICE bool simple_serves(const Exponent& exponent) const {
    return problem::gradient && !entropy_needs_maximum ? !need_maximum : exponent.fused;
  }

  /// In 16 bits: computes the exponents of a vector, and puts it under its cap.
  template <bool, int n>
  CE_DEVICE void to_exponents(Vector<problem::Element, n>& vector, float (&x)[n],
                              const Exponent& exponent) const {
    float y[n];
    vector.values(x);
#pragma unroll
    for (int k = 0; k < n; ++k) y[k] = x[k];
    to_tanh(x);
    if (problem::gradient && holds_exponents()) vector = held(y, x);
#pragma unroll
    for (int k = 0; k < n; ++k) x[k] = exponent.either(x[k]);
  }
  /// For a tile that has been added.
  template <class Tile>
  CE_DEVICE int first_nan(const Tile& tile) const {
    const auto is_nan = [](float x) { return x != x; };
    return problem::gradient && holds_exponents() ? first_where<Held>(tile, is_nan)
                                                  : first_where(tile, is_nan);
  }

  /// In place. Elements outside of the tile become -infinity in f32.
  template <class Tile>
  CE_DEVICE void put_under_cap(Tile& tile) const {
    constexpr int count = sizeof(tile.elements) / sizeof(tile.elements[0]), n = Tile::vec;
    if (bounded && !holds_exponents()) return;
    if constexpr (!Tile::is_plain)
      if (!tile.full() || !are_near_zero(largest_magnitude_of(tile))) return put_any_under_cap(tile);
    const Quotient quotient(ratio, bounded ? c : 1.f);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      float x[n];
      tile.elements[i].of_input[0].values(x);
      quotient.multiply(x);
      tile.elements[i].of_input[0] = Vector<Held, n>::of(x).template as<problem::Element>();
    }
  }
  /// For any logits, near 0 or not.
  template <class Tile>
  CE_DEVICE void put_any_under_cap(Tile& tile) const {
    constexpr int count = sizeof(tile.elements) / sizeof(tile.elements[0]), n = Tile::vec;
    using Vec = Vector<problem::Element, n>;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      float x[n], u[n];
      tile.elements[i].of_input[0].values(x);
#pragma unroll
      for (int k = 0; k < n; ++k) u[k] = x[k];
      to_tanh(u);
      tile.elements[i].of_input[0] = bounded || tile.inside(i) ? held(x, u) : Vec::filled(-infinity());
    }
  }

  /// Whether all logits of the tile, which is under its cap, have the form near 0.
  template <class Tile>
  CE_DEVICE bool near_zero_under_cap(const Tile& tile) const {
    return !bounded || Tile::is_plain ||
           (holds_exponents() && has_near_form(largest_magnitude_of<Held>(tile)));
  }
  /// Returns the exponents and slopes of a vector under its cap, in other units.
  /// \tparam is_near  near_zero_under_cap() has returned true
  template <bool is_near, int n>
  CE_DEVICE void take_out(const Vector<problem::Element, n>& vector, float (&t)[n], float (&slope)[n]) const {
    vector.template as<Held>().values(t);
    if constexpr (!bounded) {
#pragma unroll
      for (int k = 0; k < n; ++k) slope[k] = HyperbolicTangent::slope_of(t[k]);
    } else if (is_near || holds_exponents()) {
#pragma unroll
      for (int k = 0; k < n; ++k) {
        slope[k] = multiply_add(-t[k], t[k], c * c);
        if (is_near || has_near_form(absolute(t[k]))) continue;
        const Transformed y = HyperbolicTangent::of(t[k] * per_c);
        t[k] = c * y.u;
        slope[k] = c * c * y.slope;
      }
    } else {
      vector.values(t);
#pragma unroll
      for (int k = 0; k < n; ++k) {
        const Transformed y = transformed(t[k]);
        t[k] = y.u;
        slope[k] = y.slope;
      }
    }
  }
  CE_DEVICE float log_sum_less_target(float u, float sum, float log_sum) const {
    if (need_maximum) return multiply_add(-cap, u, log_sum);
    // Without a maximum both may be as large as the cap, and their difference small: the integer part of the sum's
    // base-2 logarithm is combined with the target first. In f32, ln 2 is split into two parts (Cody and Waite, 1980),
    // and the rounding error of that difference (TwoSum, as in stats.cuh) is added.
    constexpr float to_integer = 0x1.8p23f, ln_2_high = 0x1.63p-1f, ln_2_low = -0x1.bd0106p-13f;
    const float per_u = exponent_of_e * cap;
    const float t = (log2(sum) + to_integer) - to_integer, fraction = log(sum * exp2(-t));
    if constexpr (narrow) return multiply_add(multiply_add(-per_u, u, t), ln_2, fraction);
    const float z = product(per_u, u), low_of_z = multiply_add(per_u, u, -z), high = t * ln_2_high;
    const float difference = high - z, apart = difference - high;
    const float low = (high - (difference - apart)) - (z + apart) - low_of_z;
    return difference + (multiply_add(t, ln_2_low, fraction) + low);
  }
  /// The unit of exponents relative to u; its square is the unit of slopes.
  CE_DEVICE float unit_under_cap() const { return bounded && holds_exponents() ? c : 1.f; }

 private:
  /// |z| is at most the cap: sums are within e^-32 to 2^31 e^32, so their inverses are valid factors of a gradient. (A
  /// single class uses its own maximum, so that its loss is exactly 0.)
  static constexpr float largest_cap_alone = 32.f;

  /// The element type of a vector under its cap.
  template <bool, class>
  struct HeldAs {
    using Type = f16;
  };
  template <class Element>
  struct HeldAs<false, Element> {
    using Type = Element;
  };
  using Held = typename HeldAs<bounded, problem::Element>::Type;

  CE_DEVICE static float near_of(float ratio, float cap) {
    return is_ordinary(ratio) && is_ordinary(cap) ? HyperbolicTangent::near / ratio : 0.f;
  }
  CE_DEVICE bool are_near_zero(float magnitude) const { return magnitude < near; }
  /// For an element under its cap. The bound is between tanh(near) = 0.54 and near.
  CE_DEVICE bool has_near_form(float magnitude) const { return magnitude < 0.57f * c; }
  /// Under an unusual cap, 16-bit vectors hold x; everything else is then slower.
  CE_DEVICE bool holds_exponents() const { return near > 0.f; }
  /// Powers of such numbers, as used in the coefficients, are neither infinite nor subnormal, and c is far from the
  /// largest f16.
  CE_DEVICE static bool is_ordinary(float x) { return x > 0x1p-12f && x < 0x1p12f; }

  /// Neighbours are tested together: if all are near 0 none of them needs an exponential.
  template <int n>
  CE_DEVICE void to_tanh(float (&x)[n]) const {
    float largest = 0.f;
#pragma unroll
    for (int k = 0; k < n; ++k) largest = maximum(largest, absolute(x[k]));
    if (are_near_zero(largest)) return Quotient(ratio, 1.f).multiply(x);
#pragma unroll
    for (int k = 0; k < n; ++k) x[k] = of(x[k]);
  }
  template <int n>
  CE_DEVICE Vector<problem::Element, n> held(const float (&x)[n], const float (&u)[n]) const {
    float v[n];
#pragma unroll
    for (int k = 0; k < n; ++k)
      v[k] = !bounded ? u[k] : c * (are_near_zero(absolute(x[k])) ? u[k] : ratio * x[k]);
    return Vector<Held, n>::of(v).template as<problem::Element>();
  }
};

}  // namespace ce
