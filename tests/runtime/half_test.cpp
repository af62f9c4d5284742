#include "templates/device/half.cuh"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace {

using ce::bf16_bits_from_float;
using ce::f16_bits_from_float;
using ce::float_from_bf16_bits;
using ce::float_from_f16_bits;

using Narrow = unsigned short (*)(float);
using Widen = float (*)(unsigned short);

// The conversions are usable at compile time.
static_assert(f16_bits_from_float(1.0f) == 0x3c00 && bf16_bits_from_float(1.0f) == 0x3f80);
static_assert(float_from_f16_bits(0xc000) == -2.0f && float_from_bf16_bits(0xc000) == -2.0f);

unsigned short pattern(unsigned bits) { return static_cast<unsigned short>(bits); }

/// A 16-bit format with this many exponent and mantissa bits, decoded by its definition.
double decode(unsigned bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const auto mantissa = static_cast<double>(bits & ((1u << mantissa_bits) - 1u));
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(std::ldexp(1.0, mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

void expect_all_patterns_survive(Narrow narrow, Widen widen) {
  for (unsigned bits = 0; bits < 0x10000; ++bits)
    ASSERT_EQ(narrow(widen(pattern(bits))), bits) << std::hex << bits;
}

void expect_values_by_definition(Widen widen, int exponent_bits, int mantissa_bits) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const double expected = decode(bits, exponent_bits, mantissa_bits);
    const float value = widen(pattern(bits));
    ASSERT_EQ(std::isnan(value), std::isnan(expected)) << std::hex << bits;
    ASSERT_TRUE(static_cast<double>(value) == expected || std::isnan(expected)) << std::hex << bits;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000u) != 0) << std::hex << bits;
  }
}

/// Between each finite value and the next: half way goes to the even one, everything else to the nearer one.
void expect_rounding_at_every_midpoint(Narrow narrow, Widen widen, unsigned infinity) {
  for (unsigned low = 0; low + 1 < infinity; ++low) {
    const unsigned high = low + 1;
    const auto middle = static_cast<float>(
        (static_cast<double>(widen(pattern(low))) + static_cast<double>(widen(pattern(high)))) / 2);
    const unsigned even = low % 2 == 0 ? low : high;
    ASSERT_EQ(narrow(middle), even) << std::hex << low;
    ASSERT_EQ(narrow(-middle), even | 0x8000u) << std::hex << low;
    ASSERT_EQ(narrow(std::nextafterf(middle, 0.0f)), low) << std::hex << low;
    ASSERT_EQ(narrow(std::nextafterf(middle, HUGE_VALF)), high) << std::hex << low;
  }
}

TEST(F16, EveryPatternSurvivesTheWayToF32AndBack) {
  expect_all_patterns_survive(f16_bits_from_float, float_from_f16_bits);
}
TEST(Bf16, EveryPatternSurvivesTheWayToF32AndBack) {
  expect_all_patterns_survive(bf16_bits_from_float, float_from_bf16_bits);
}

TEST(F16, EveryPatternHasTheValueOfItsDefinition) { expect_values_by_definition(float_from_f16_bits, 5, 10); }
TEST(Bf16, EveryPatternHasTheValueOfItsDefinition) {
  expect_values_by_definition(float_from_bf16_bits, 8, 7);
}

TEST(F16, RoundsToNearestEvenAtEveryMidpoint) {
  expect_rounding_at_every_midpoint(f16_bits_from_float, float_from_f16_bits, 0x7c00);
}
TEST(Bf16, RoundsToNearestEvenAtEveryMidpoint) {
  expect_rounding_at_every_midpoint(bf16_bits_from_float, float_from_bf16_bits, 0x7f80);
}

TEST(F16, WhatIsTooLargeBecomesInfinity) {
  EXPECT_EQ(f16_bits_from_float(65504.0f), 0x7bff);
  EXPECT_EQ(f16_bits_from_float(std::nextafterf(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(f16_bits_from_float(65520.0f), 0x7c00);
  EXPECT_EQ(f16_bits_from_float(-1e30f), 0xfc00);
  EXPECT_EQ(f16_bits_from_float(HUGE_VALF), 0x7c00);
}

TEST(Bf16, WhatIsTooLargeBecomesInfinity) {
  EXPECT_EQ(bf16_bits_from_float(std::bit_cast<float>(0x7f7f7fffu)), 0x7f7f);
  EXPECT_EQ(bf16_bits_from_float(std::bit_cast<float>(0x7f7f8000u)), 0x7f80);
  EXPECT_EQ(bf16_bits_from_float(-std::numeric_limits<float>::max()), 0xff80);
  EXPECT_EQ(bf16_bits_from_float(-HUGE_VALF), 0xff80);
}

TEST(F16, WhatIsTooSmallBecomesZeroWithItsSign) {
  EXPECT_EQ(f16_bits_from_float(0x1p-25f), 0x0000);
  EXPECT_EQ(f16_bits_from_float(std::nextafterf(0x1p-25f, 1.0f)), 0x0001);
  EXPECT_EQ(f16_bits_from_float(-0x1p-30f), 0x8000);
  EXPECT_EQ(f16_bits_from_float(std::numeric_limits<float>::denorm_min()), 0x0000);
}

// The payload of these NaNs lies entirely in the bits that are cut off.
TEST(Half, ANaNStaysANaN) {
  for (const unsigned bits : {0x7f800001u, 0xff800001u, 0x7f800fffu, 0x7fffffffu, 0xffffffffu}) {
    const auto nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(float_from_f16_bits(f16_bits_from_float(nan)))) << std::hex << bits;
    EXPECT_TRUE(std::isnan(float_from_bf16_bits(bf16_bits_from_float(nan)))) << std::hex << bits;
    EXPECT_EQ(f16_bits_from_float(nan) >> 15, bits >> 31);
    EXPECT_EQ(bf16_bits_from_float(nan) >> 15, bits >> 31);
  }
}

}  // namespace
