// What cross entropy makes of the logits x before anything else:
//
//     z = scale x        or, with a soft cap (Gemma 2, 2024),        z = cap tanh(scale x / cap)
//
// Kernels work on u with z = unit u, so that a scale alone costs nothing: u = x and unit = scale without a
// cap, u = z and unit = 1 with one.
#pragma once
#include "arguments.cuh"
#include "device.cuh"

namespace ce {

/// tanh(y) = 1 - 2 / (1 + exp(2 y)), to an absolute error of about 2e-7.
CE_DEVICE float hyperbolic_tangent(float y) {
  return 1.f - 2.f * reciprocal(1.f + exp2(2.885390081777927f * y));
}

struct Logits {
  static constexpr bool bounded = problem::softcap;  ///< -infinity becomes finite
  float scale, cap, per_cap, ratio;                  // 1 / cap, scale / cap

  CE_DEVICE explicit Logits(const Arguments& arguments)
      : scale(problem::scale ? arguments.scale : 1.f),
        cap(problem::softcap ? arguments.cap : 1.f),
        per_cap(1.f / cap),
        ratio(scale * per_cap) {}
  CE_DEVICE float of(float x) const {
    return problem::softcap ? product(cap, hyperbolic_tangent(ratio * x)) : x;
  }
  CE_DEVICE float unit() const { return problem::softcap ? 1.f : scale; }
  /// dz/dx where the transformed logit is u.
  CE_DEVICE float slope(float u) const {
    if constexpr (!problem::softcap) return scale;
    const float t = u * per_cap;
    return scale * (1.f - t * t);
  }
};

}  // namespace ce
