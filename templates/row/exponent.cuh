// Exponentials of a difference x - max, with formulas for each element size.
//
// 16-bit elements: base 2, one multiply-add and one ex2. Their kernels are near the limits of instruction issue and of
// the exponential unit, and their outputs do not show the rounding.
//
// f32: base e, accurate to about one unit in the last place. These kernels are bound by memory, so the difference is
// computed first, where it costs nothing and only rounds once, however large x and max are; and the rounding error of
// its product with log2(e) is corrected.
#pragma once
#include "device/device.cuh"

namespace ce {

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

/// Whether elements have 16 bits.
constexpr bool narrow = sizeof(problem::Element) == 2;

/// The exponent of e in the base that is used.
[[maybe_unused]] constexpr float exponent_of_e = narrow ? log2_e : 1.f;

CE_DEVICE bool is_finite(float x) { return absolute(x) < infinity(); }

/// weight x value, but 0 if the weight is 0 and the value infinite: an element that does not count adds nothing.
CE_DEVICE float weigh(float weight, float value) {
  return weight == 0.f && absolute(value) == infinity() ? 0.f : weight * value;
}

/// The maximum in a form that can be subtracted: -infinity would give NaN.
CE_DEVICE float finite_or_zero(float max) { return max == -infinity() ? 0.f : max; }

/// x / y to about one unit in the last place, and exact if the quotient is a float. y is a sum of exponentials relative
/// to their maximum, or one of them: neither y nor `per_y`, its reciprocal(), is near the limits of f32.
CE_DEVICE float quotient(float x, float y, float per_y) {
  const float near = x * per_y;
  return multiply_add(multiply_add(-near, y, x), per_y, near);
}

/// e^x = power (1 + rest), for x below 88. The power is 2^t with t = x log2(e) rounded; the rest is the error of t, to
/// |x| 2^-28.
struct Exponential {
  float power, rest;

  CE_DEVICE explicit Exponential(float x) {
    const float near = at_least(x, -128.f);  // their power is 0; the rest of -infinity would be NaN
    const float t = product(near, log2_e);
    power = exp2(t);
    rest = multiply_add(-ln_2, t, near);
  }
  CE_DEVICE float value() const { return multiply_add(power, rest, power); }
  /// Multiplies by high + low, rounded once apart from the error of the power.
  CE_DEVICE float times(float high, float low) const {
    return multiply_add(power, high, power * multiply_add(high, rest, low));
  }
};

/// e^x, with one multiplication and one ex2 for 16-bit elements.
CE_DEVICE float exponential(float x) { return narrow ? exp2(x * log2_e) : Exponential(x).value(); }

template <bool is_narrow>
struct ExponentOf;

/// 2^(c (x - max)) with one fused multiply-add: 2^(c x - s) with s = c max rounded. The rounding of s changes all terms
/// of a sum equally, so it cancels when they are divided by the sum. Beyond 2^30 it could overflow; neighbouring values
/// are then so far apart that subtracting first loses nothing.
template <>
struct ExponentOf<true> {
  float max, c, s;
  bool fused;

  /// A single class is the maximum: its exponent is exactly 0.
  CE_DEVICE ExponentOf(float max_of_part, float factor)
      : max(finite_or_zero(max_of_part)),
        c(factor),
        s(product(max, factor)),
        fused(!problem::single_class && absolute(s) < 0x1p30f) {}
  /// c (x - max), and the base to its power.
  CE_DEVICE float exponent(float x) const { return multiply_add(x, c, -s); }
  CE_DEVICE float exponent_apart(float x) const { return (x - max) * c; }
  /// The required one of both formulas, without a branch.
  CE_DEVICE float either(float x) const { return multiply_add(x - (fused ? 0.f : max), c, fused ? -s : 0.f); }
  CE_DEVICE static float power(float exponent) { return exp2(exponent); }
  /// The exponent of a maximum to which another part's sums are relative.
  CE_DEVICE float exponent_of_maximum(float other) const {
    const float t = product(other, c);
    return fused && absolute(t) < 0x1p30f ? t - s : exponent_apart(other);
  }
  /// The result of `exponent` for the maximum itself: 0, apart from the rounding of s.
  CE_DEVICE float at_maximum() const { return fused ? exponent(max) : 0.f; }
  /// In base e, exponents only overflow if logits do.
  CE_DEVICE float logarithm(float x) const { return (x - max) * (c * ln_2); }
  CE_DEVICE float logarithm_of_maximum(float other) const {
    const float t = exponent_of_maximum(other);
    return is_finite(t) ? t * ln_2 : logarithm(other);
  }
  /// Converts a sum of powers to one relative to the maximum itself.
  CE_DEVICE float relative(float sum) const { return sum * power(-at_maximum()); }
};

/// e^(c (x - max)).
template <>
struct ExponentOf<false> {
  float max, c;
  static constexpr bool fused = false;

  CE_DEVICE ExponentOf(float max_of_part, float factor) : max(finite_or_zero(max_of_part)), c(factor) {}
  CE_DEVICE float exponent(float x) const { return exponent_apart(x); }
  CE_DEVICE float exponent_apart(float x) const { return (x - max) * c; }
  CE_DEVICE float either(float x) const { return exponent_apart(x); }
  CE_DEVICE static float power(float exponent) { return exponential(exponent); }
  CE_DEVICE float exponent_of_maximum(float other) const { return exponent_apart(other); }
  CE_DEVICE static float at_maximum() { return 0.f; }
  CE_DEVICE float logarithm(float x) const { return exponent_apart(x); }
  CE_DEVICE float logarithm_of_maximum(float other) const { return exponent_apart(other); }
  CE_DEVICE static float relative(float sum) { return sum; }
};

using Exponent = ExponentOf<narrow>;

/// The exponent of x relative to the maximum.
CE_DEVICE float exponent_of(const Exponent& exponent, float x) {
  return exponent.fused ? exponent.exponent(x) : exponent.exponent_apart(x);
}

}  // namespace ce
