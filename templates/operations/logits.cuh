// What cross entropy makes of the logits x before anything else:
//
//     z = scale x        or, with a soft cap (Gemma 2, 2024),        z = cap tanh(scale x / cap)
//
// where the scale may be one of the row.
//
// Kernels work on u with z = unit u, so that a factor costs nothing: u = x and unit = scale without a cap,
// u = tanh(scale x / cap) and unit = cap with one.
#pragma once
#include "arguments.cuh"
#include "row/exponentials.cuh"

namespace ce {

/// A transformed logit u, and du/dy there.
struct Transformed {
  float u, slope;
};

/// u = tanh(y), which has two forms.
///
/// Near 0 it is y + y^3 P(y^2), with P a minimax polynomial: multiply-adds only, no exponential. Most logits of a
/// trained model are there.
///
/// Elsewhere, with e = exp(-2 |y|) and q = 2 / (1 + e), |u| = 1 - e q and 1 - u^2 = e q^2, in which nothing
/// cancels. Elements of 16 bits do not show the difference from 1 - u^2; in f32 the target alone has it, since of the
/// others there is only u.
template <bool is_narrow>
struct HyperbolicTangentOf {
  /// |y| below which the polynomial is right to 3e-6 (16 bits) or 4e-8.
  static constexpr float near = is_narrow ? 0.6f : 0.55f;

  /// Of P, that of y^2 to the power of i.
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

/// The transform with a soft cap, of logits x near 0: a factor times tanh(r x) = x Q(x^2), with r = scale / cap and the
/// factor in the coefficients of Q.
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

/// Of a tile whose logits are all near 0.
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
    } else {
#pragma unroll
      for (int k = 0; k < n; ++k) x[k] = multiply_add(x[k], quotient.at(x[k]), -exponent.s);
    }
  }
};

/// Logits are put under their cap once, where a tile is first read; what holds x then holds, for the outputs,
///
///     f32       u = tanh(y)
///     16 bits   c tanh(y) where that is near 0, and c y elsewhere, in f16 whatever the elements are
///
/// with y = scale x / cap and c = cap log2(e): the exponents, right to 2^-12 of themselves, as those of f16 logits are to
/// begin with and those of bf16 are not. The two forms do not meet, since tanh(y) < 0.9 y where it is not near 0; there the
/// slope would be lost in the rounding of the first one.
struct Logits {
  static constexpr bool bounded = problem::softcap && narrow;  ///< -infinity becomes finite
  float scale, cap, ratio;                                     ///< scale / cap
  float near;                                                  ///< |x| below which tanh has the form near 0
  float c, per_c;                                              ///< 1 / c
  bool need_maximum;  ///< sums of exponentials could overflow, or lose what is small, if nobody looked for it

  CE_DEVICE explicit Logits(const Arguments& arguments)
      : scale(problem::scale ? arguments.amounts[problem::scale_amount] : 1.f),
        cap(problem::softcap ? arguments.amounts[problem::softcap_amount] : 1.f),
        ratio(scale / cap),
        near(near_of(ratio, cap)),
        c(product(cap, log2_e)),
        per_c(1.f / c),
        need_maximum(!problem::softcap || problem::single_class || !(cap <= largest_cap_alone)) {}
  /// Of a row that has a scale of its own; a scale that is none is taken as 1 (see is_scale()).
  CE_DEVICE Logits of_row(float row_scale) const {
    Logits own = *this;
    if constexpr (problem::row_scales) {
      own.scale = is_scale(row_scale) ? scale * row_scale : 1.f;
      own.ratio = own.scale / cap;
      own.near = near_of(own.ratio, cap);
    }
    return own;
  }
  /// Whether the kernels can multiply logits with it: what follows from it is neither infinite nor subnormal.
  CE_DEVICE bool is_scale(float row_scale) const {
    return scale * row_scale >= 0x1p-60f && scale * row_scale <= 0x1p60f;
  }
  CE_DEVICE float unit() const { return problem::softcap ? cap : scale; }

  CE_DEVICE Transformed transformed(float x) const {
    if constexpr (!problem::softcap) return {x, 1.f};
    if (!are_near_zero(absolute(x))) return HyperbolicTangent::of(ratio * x);
    const float u = x * Quotient(ratio, 1.f).at(x);
    return {u, HyperbolicTangent::slope_of(u)};
  }
  CE_DEVICE float of(float x) const { return transformed(x).u; }
  /// As f32 has it: a row has one target, whose loss shows more than outputs of 16 bits. (Not of a single class, which is
  /// the maximum, too.)
  CE_DEVICE Transformed of_target(float x) const {
    if constexpr (problem::softcap && narrow && !problem::single_class)
      return HyperbolicTangentOf<false>::of(ratio * x);
    return transformed(x);
  }

  /// Whether NearZero is right for the whole tile, which is not under its cap.
  template <class Tile>
  CE_DEVICE bool near_zero(const Tile& tile) const {
    if constexpr (!bounded) return true;
    return are_near_zero(largest_magnitude_of(tile));
  }
  CE_DEVICE NearZero simple() const { return {ratio}; }
  /// Of the row's tiles: with a gradient only where no maximum is subtracted, since the exponents are what is held.
  CE_DEVICE bool simple_serves(const Exponent& exponent) const {
    return problem::gradient ? !need_maximum : exponent.fused;
  }

  /// In 16 bits, of a vector that it leaves under its cap.
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
  /// Of a tile that has been added.
  template <class Tile>
  CE_DEVICE int first_nan(const Tile& tile) const {
    const auto is_nan = [](float x) { return x != x; };
    return problem::gradient && holds_exponents() ? first_where<Held>(tile, is_nan)
                                                  : first_where(tile, is_nan);
  }

  /// In place. What is not inside the tile becomes -infinity in f32.
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
  /// Wherever they lie.
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
  /// Of a vector under its cap: exponents and slopes, in other units.
  /// \tparam is_near  near_zero_under_cap() says that it may be so
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
  /// That of the exponents, u being 1, whose square is that of the slopes.
  CE_DEVICE float unit_under_cap() const { return bounded && holds_exponents() ? c : 1.f; }

 private:
  /// |z| is at most the cap: sums from e^-32 to 2^31 e^32, whose inverses a gradient's factors multiply. (The loss of a
  /// single class is exactly 0, which takes its own maximum.)
  static constexpr float largest_cap_alone = 32.f;

  /// What a vector under its cap has as elements.
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
  /// Of an element under its cap: between tanh(near) = 0.54 and near.
  CE_DEVICE bool has_near_form(float magnitude) const { return magnitude < 0.57f * c; }
  /// Under a cap that is not ordinary, 16 bits hold x. Everything else takes longer then.
  CE_DEVICE bool holds_exponents() const { return near > 0.f; }
  /// Powers of it, as far as coefficients have any, are neither infinite nor subnormal, and c is far from the largest f16.
  CE_DEVICE static bool is_ordinary(float x) { return x > 0x1p-12f && x < 0x1p12f; }

  /// Neighbours at once: where all are near 0 none of them needs an exponential.
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
