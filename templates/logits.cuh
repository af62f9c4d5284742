// What cross entropy makes of the logits x before anything else:
//
//     z = scale x        or, with a soft cap (Gemma 2, 2024),        z = cap tanh(scale x / cap)
//
// Kernels work on u with z = unit u, so that a factor costs nothing: u = x and unit = scale without a cap,
// u = tanh(scale x / cap) and unit = cap with one.
#pragma once
#include "arguments.cuh"
#include "exponent.cuh"

namespace ce {

/// A transformed logit u, and dz/dx there.
struct Transformed {
  float u, slope;
};

/// u = tanh(y) and 1 - u^2.
///
/// With e = exp(-2 |y|) and q = 2 / (1 + e), |u| = 1 - e q and 1 - u^2 = e q^2, in which nothing cancels as long
/// as |y| is not small. There u is y + y^3 P(y^2), with P a minimax polynomial (relative error 4e-8). Elements
/// of 16 bits show neither.
CE_DEVICE Transformed hyperbolic_tangent(float y) {
  if constexpr (narrow) {
    const float u = 1.f - 2.f * reciprocal(1.f + exp2(2.f * log2_e * y));
    return {u, 1.f - u * u};
  }
  const float e = exp2(-2.f * log2_e * absolute(y)), q = reciprocal(multiply_add(0.5f, e, 0.5f));
  const float s = y * y;
  float p = multiply_add(0.0164375901f, s, -0.0526718199f);
  p = multiply_add(p, s, 0.1332072467f);
  p = multiply_add(p, s, -0.3333294690f);
  const float u = multiply_add(p * s, y, y);
  if (absolute(y) < 0.55f) return {u, multiply_add(-u, u, 1.f)};
  return {with_sign(multiply_add(-e, q, 1.f), y), e * q * q};
}

struct Logits {
  static constexpr bool bounded = problem::softcap;  ///< -infinity becomes finite
  float scale, cap, ratio;                           // scale / cap

  CE_DEVICE explicit Logits(const Arguments& arguments)
      : scale(problem::scale ? arguments.scale : 1.f),
        cap(problem::softcap ? arguments.cap : 1.f),
        ratio(scale / cap) {}
  CE_DEVICE Transformed transformed(float x) const {
    if constexpr (!problem::softcap) return {x, scale};
    const Transformed capped = hyperbolic_tangent(ratio * x);
    return {capped.u, scale * capped.slope};
  }
  CE_DEVICE float of(float x) const { return transformed(x).u; }
  CE_DEVICE float unit() const { return problem::softcap ? cap : scale; }
};

}  // namespace ce
