// What cross entropy makes of the logits x before anything else:
//
//     z = scale x        or, with a soft cap (Gemma 2, 2024),        z = cap tanh(scale x / cap)
//
// Kernels work on u with z = unit u, so that a factor costs nothing: u = x and unit = scale without a cap,
// u = tanh(scale x / cap) and unit = cap with one.
#pragma once
#include "arguments.cuh"
#include "exponentials.cuh"

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

/// The transform with a soft cap, of logits x near 0: u = x Q(x^2), with scale and cap in the coefficients of Q.
struct NearZero {
  static constexpr bool bounded = true;
  float ratio;  ///< scale / cap

  /// Q times a factor.
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
  };
  template <int n>
  CE_DEVICE void apply(float (&x)[n], float (&slope)[n]) const {
    const Quotient quotient(ratio, 1.f);
#pragma unroll
    for (int k = 0; k < n; ++k) {
      x[k] *= quotient.at(x[k]);
      slope[k] = HyperbolicTangent::slope_of(x[k]);
    }
  }
  /// Where only powers of them count, c is in the coefficients, too.
  template <bool fused, bool alone, int n, class Exponent>
  CE_DEVICE void to_exponents(float (&x)[n], const Exponent& exponent) const {
    if constexpr (fused && alone) {
      const Quotient quotient(ratio, exponent.c);
#pragma unroll
      for (int k = 0; k < n; ++k) x[k] = multiply_add(x[k], quotient.at(x[k]), -exponent.s);
    } else {
      float slope[n];
      apply(x, slope);
      exponents<fused>(x, exponent);
    }
  }
};

struct Logits {
  /// What holds x can hold u: tiles are put under their cap in place. 16 bits cannot, and transform where they are read.
  static constexpr bool in_place = problem::softcap && !narrow;
  static constexpr bool bounded = problem::softcap && !in_place;  ///< -infinity becomes finite
  float scale, cap, ratio;                                        ///< scale / cap
  float near;                                                     ///< |ratio x| below which NearZero is right

  CE_DEVICE explicit Logits(const Arguments& arguments)
      : scale(problem::scale ? arguments.scale : 1.f),
        cap(problem::softcap ? arguments.cap : 1.f),
        ratio(scale / cap),
        near(is_ordinary(ratio) && is_ordinary(cap) ? HyperbolicTangent::near : 0.f) {}
  /// Whether sums of exponentials could overflow, or lose what is small, if nobody looked for the maximum: |z| is at most
  /// the cap. (The loss of a single class is exactly 0, which takes its own maximum.)
  CE_DEVICE bool need_maximum() const {
    constexpr float largest =
        32.f;  // sums from e^-32 to 2^31 e^32, whose inverses a gradient's factors multiply
    return !problem::softcap || problem::columns == 1 || !(cap <= largest);
  }
  CE_DEVICE float unit() const { return problem::softcap ? cap : scale; }

  CE_DEVICE Transformed transformed(float x) const {
    if constexpr (!problem::softcap) return {x, 1.f};
    if (!are_near_zero(absolute(x))) return HyperbolicTangent::of(ratio * x);
    float u[] = {x}, slope[1];
    simple().apply(u, slope);
    return {u[0], slope[0]};
  }
  CE_DEVICE float of(float x) const { return transformed(x).u; }
  /// As f32 has it: a row has one target, whose loss shows more than outputs of 16 bits. (Not of a single class, which is
  /// the maximum, too.)
  CE_DEVICE Transformed of_target(float x) const {
    if constexpr (problem::softcap && narrow && problem::columns > 1)
      return HyperbolicTangentOf<false>::of(ratio * x);
    return transformed(x);
  }

  /// Whether NearZero is right for the whole tile.
  template <class Tile>
  CE_DEVICE bool near_zero(const Tile& tile) const {
    if constexpr (!bounded) return true;
    return are_near_zero(largest_magnitude_of(tile));
  }
  CE_DEVICE NearZero simple() const { return {ratio}; }

  template <bool fused, bool alone, int n>
  CE_DEVICE void to_exponents(float (&x)[n], const Exponent& exponent) const {
    float slope[n];
    apply(x, slope);
    exponents<fused>(x, exponent);
  }
  /// Neighbours at once: where all are near 0 none of them needs an exponential.
  template <int n>
  CE_DEVICE void apply(float (&x)[n], float (&slope)[n]) const {
    if constexpr (!problem::softcap) return;
    float largest = 0.f;
#pragma unroll
    for (int k = 0; k < n; ++k) largest = maximum(largest, absolute(x[k]));
    if (are_near_zero(largest)) return simple().apply(x, slope);
#pragma unroll
    for (int k = 0; k < n; ++k) {
      const Transformed y = transformed(x[k]);
      x[k] = y.u;
      slope[k] = y.slope;
    }
  }

  /// In place. What is not inside the tile becomes -infinity.
  template <class Tile>
  CE_DEVICE void put_under_cap(Tile& tile) const {
    using Vec = Vector<problem::Element, Tile::vec>;
    constexpr int count = sizeof(tile.elements) / sizeof(tile.elements[0]);
    if (tile.full() && are_near_zero(largest_magnitude_of(tile))) {
#pragma unroll
      for (int i = 0; i < count; ++i) {
        float x[Tile::vec], slope[Tile::vec];
        tile.elements[i].of_input[0].values(x);
        simple().apply(x, slope);
        tile.elements[i].of_input[0] = Vec::of(x);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < count; ++i) {
      float x[Tile::vec], slope[Tile::vec];
      tile.elements[i].of_input[0].values(x);
      apply(x, slope);
      tile.elements[i].of_input[0] = tile.inside(i) ? Vec::of(x) : Vec::filled(-infinity());
    }
  }

 private:
  CE_DEVICE bool are_near_zero(float magnitude) const { return ratio * magnitude < near; }
  /// Powers of it, as far as coefficients have any, are neither infinite nor subnormal.
  CE_DEVICE static bool is_ordinary(float x) { return x > 0x1p-12f && x < 0x1p12f; }
};

}  // namespace ce
