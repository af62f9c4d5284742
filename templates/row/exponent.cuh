// Exponentials of a difference x - max, in the way that the size of the elements asks for.
//
// Elements of 16 bits: base 2, one multiply-add and one ex2. Their kernels are near the limits of instruction
// issue and of the exponential unit, and their outputs show nothing of the rounding.
//
// f32: base e, right to about one unit in the last place. These kernels wait for memory, so the difference
// comes first, where it costs nothing but its own rounding however large x and max are, and the rounding of
// its product with log2(e) is made good.
#pragma once
#include "device/device.cuh"

namespace ce {

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

/// Elements have 16 bits.
constexpr bool narrow = sizeof(problem::Element) == 2;

/// The exponent, in the base that is used, of e.
[[maybe_unused]] constexpr float exponent_of_e = narrow ? log2_e : 1.f;

CE_DEVICE bool is_finite(float x) { return absolute(x) < infinity(); }

/// weight x value, but 0 where the weight is 0 and the value infinite: what does not count adds nothing.
CE_DEVICE float weigh(float weight, float value) {
  return weight == 0.f && absolute(value) == infinity() ? 0.f : weight * value;
}

/// The maximum as something that can be subtracted: -infinity would turn into NaN.
CE_DEVICE float finite_or_zero(float max) { return max == -infinity() ? 0.f : max; }

/// x / y to about one unit in the last place, and exact where the quotient is a float; y is a sum of exponentials with respect
/// to their maximum, or one of them: neither it nor `per_y`, its reciprocal as reciprocal() has it, is near the limits of f32.
CE_DEVICE float quotient(float x, float y, float per_y) {
  const float near = x * per_y;
  return multiply_add(multiply_add(-near, y, x), per_y, near);
}

/// e^x = power (1 + rest), for x below 88. The power is 2^t with t = x log2(e) rounded; what t has lost is in
/// the rest, to |x| 2^-28.
struct Exponential {
  float power, rest;

  CE_DEVICE explicit Exponential(float x) {
    const float near = at_least(x, -128.f);  // whose power is 0; the rest of -infinity would be NaN
    const float t = product(near, log2_e);
    power = exp2(t);
    rest = multiply_add(-ln_2, t, near);
  }
  CE_DEVICE float value() const { return multiply_add(power, rest, power); }
  /// Times high + low, rounded once but for what the power has of its own.
  CE_DEVICE float times(float high, float low) const {
    return multiply_add(power, high, power * multiply_add(high, rest, low));
  }
};

/// e^x, with one multiplication and one ex2 where elements have 16 bits.
CE_DEVICE float exponential(float x) { return narrow ? exp2(x * log2_e) : Exponential(x).value(); }

template <bool is_narrow>
struct ExponentOf;

/// 2^(c (x - max)) with one fused multiply-add: 2^(c x - s) with s = c max rounded. The rounding of s changes
/// all terms of a sum alike, so it cancels where they are divided by the sum. Beyond 2^30 it could overflow;
/// neighbouring values are then so far apart that subtracting first loses nothing.
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
  /// c (x - max), and its power of the base.
  CE_DEVICE float exponent(float x) const { return multiply_add(x, c, -s); }
  CE_DEVICE float exponent_apart(float x) const { return (x - max) * c; }
  /// Whichever of them it has to be, without a branch.
  CE_DEVICE float either(float x) const { return multiply_add(x - (fused ? 0.f : max), c, fused ? -s : 0.f); }
  CE_DEVICE static float power(float exponent) { return exp2(exponent); }
  /// The exponent of a maximum that another part's sums refer to.
  CE_DEVICE float exponent_of_maximum(float other) const {
    const float t = product(other, c);
    return fused && absolute(t) < 0x1p30f ? t - s : exponent_apart(other);
  }
  /// What `exponent` gives for the maximum itself: 0, but for the rounding of s.
  CE_DEVICE float at_maximum() const { return fused ? exponent(max) : 0.f; }
  /// To the base e, exponents overflow only where logits do.
  CE_DEVICE float logarithm(float x) const { return (x - max) * (c * ln_2); }
  CE_DEVICE float logarithm_of_maximum(float other) const {
    const float t = exponent_of_maximum(other);
    return is_finite(t) ? t * ln_2 : logarithm(other);
  }
  /// A sum of powers with respect to the maximum itself.
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

/// The exponent of x with respect to the maximum.
CE_DEVICE float exponent_of(const Exponent& exponent, float x) {
  return exponent.fused ? exponent.exponent(x) : exponent.exponent_apart(x);
}

}  // namespace ce
