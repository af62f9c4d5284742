// What cross entropy makes of the logits x before anything else:
//
//     z = scale x        or, with a soft cap (Gemma 2, 2024),        z = cap tanh(scale x / cap)
//
// Kernels work on u with z = unit u, so that a factor costs nothing: u = x and unit = scale without a cap,
// u = tanh(scale x / cap) and unit = cap with one.
#pragma once
#include "arguments.cuh"
#include "exponent.cuh"
#include "tile.cuh"

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
/// cancels. Elements of 16 bits do not show the difference from 1 - u^2.
struct HyperbolicTangent {
  /// |y| below which the polynomial is right to 3e-6 (16 bits) or 4e-8.
  static constexpr float near = narrow ? 0.6f : 0.55f;

  CE_DEVICE static float near_zero(float y) {
    const float s = y * y;
    float p;
    if constexpr (narrow) {
      p = multiply_add(-0.0413877662f, s, 0.1308641695f);
      p = multiply_add(p, s, -0.3331907414f);
    } else {
      p = multiply_add(0.0164375901f, s, -0.0526718199f);
      p = multiply_add(p, s, 0.1332072467f);
      p = multiply_add(p, s, -0.3333294690f);
    }
    return multiply_add(p * s, y, y);
  }
  CE_DEVICE static float slope_of(float u) { return multiply_add(-u, u, 1.f); }

  CE_DEVICE static Transformed of(float y) {
    const float u = near_zero(y);
    const float e = exp2(-2.f * log2_e * absolute(y)), q = reciprocal(multiply_add(0.5f, e, 0.5f));
    const float far = with_sign(multiply_add(-e, q, 1.f), y);
    if (absolute(y) < near) return {u, slope_of(u)};
    return {far, narrow ? slope_of(far) : e * q * q};
  }
};

/// The transform with a soft cap, of logits that are all near 0.
struct NearZero {
  static constexpr bool bounded = true;
  float ratio;

  template <int n>
  CE_DEVICE void apply(float (&x)[n]) const {
#pragma unroll
    for (int k = 0; k < n; ++k) x[k] = HyperbolicTangent::near_zero(ratio * x[k]);
  }
  template <int n>
  CE_DEVICE void apply(float (&x)[n], float (&slope)[n]) const {
    apply(x);
#pragma unroll
    for (int k = 0; k < n; ++k) slope[k] = HyperbolicTangent::slope_of(x[k]);
  }
};

struct Logits {
  static constexpr bool bounded = problem::softcap;  ///< -infinity becomes finite
  float scale, cap, ratio;                           // scale / cap

  CE_DEVICE explicit Logits(const Arguments& arguments)
      : scale(problem::scale ? arguments.scale : 1.f),
        cap(problem::softcap ? arguments.cap : 1.f),
        ratio(scale / cap) {}
  CE_DEVICE float unit() const { return problem::softcap ? cap : scale; }

  CE_DEVICE Transformed transformed(float x) const {
    if constexpr (!problem::softcap) return {x, 1.f};
    return HyperbolicTangent::of(ratio * x);
  }
  CE_DEVICE float of(float x) const { return transformed(x).u; }

  /// Whether NearZero is right for the whole tile.
  template <class Tile>
  CE_DEVICE bool near_zero(const Tile& tile) const {
    if constexpr (!problem::softcap) return true;
    return are_near_zero(largest_magnitude_of(tile));
  }
  CE_DEVICE NearZero simple() const { return {ratio}; }

  template <int n>
  CE_DEVICE void apply(float (&x)[n]) const {
    float slope[n];
    apply(x, slope);
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

 private:
  CE_DEVICE bool are_near_zero(float magnitude) const { return ratio * magnitude < HyperbolicTangent::near; }
};

}  // namespace ce
