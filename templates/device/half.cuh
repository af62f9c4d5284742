// Conversion between f32 and the two 16-bit formats, on bits. It is plain C++ without includes, so that kernels on the
// host device and ordinary C++ code share it. Narrowing rounds to nearest even. Signed zeros, subnormals, infinities
// and NaNs (with the top bits of their payload) are kept, so every 16-bit pattern survives the conversion to f32 and
// back.
#pragma once

namespace ce {

/// `bits` shifted right by 1..31, rounded to nearest even.
constexpr unsigned shift_right_to_nearest_even(unsigned bits, unsigned shift) {
  return (bits + (1u << (shift - 1)) - 1u + (bits >> shift & 1u)) >> shift;
}

constexpr float float_from_bf16_bits(unsigned short bits) {
  return __builtin_bit_cast(float, static_cast<unsigned>(bits) << 16);
}

constexpr unsigned short bf16_bits_from_float(float value) {
  const unsigned bits = __builtin_bit_cast(unsigned, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    const unsigned top = bits >> 16;
    return static_cast<unsigned short>((top & 0x7fu) != 0 ? top : top | 0x40u);
  }
  return static_cast<unsigned short>(shift_right_to_nearest_even(bits & 0x7fffffffu, 16) |
                                     (bits >> 16 & 0x8000u));
}

constexpr float float_from_f16_bits(unsigned short bits) {
  const unsigned sign = (bits & 0x8000u) << 16;
  const unsigned magnitude = bits & 0x7fffu;
  unsigned wide = 0;
  if (magnitude >= 0x7c00u)
    wide = 0x7f800000u | (magnitude & 0x3ffu) << 13;
  else if (magnitude >= 0x0400u)
    wide = (magnitude << 13) + (112u << 23);  // the exponent's bias is 127 instead of 15
  else
    wide = __builtin_bit_cast(unsigned, static_cast<float>(magnitude) * 0x1p-24f);
  return __builtin_bit_cast(float, sign | wide);
}

constexpr unsigned short f16_bits_from_float(float value) {
  const unsigned bits = __builtin_bit_cast(unsigned, value);
  const unsigned sign = bits >> 16 & 0x8000u;
  const unsigned magnitude = bits & 0x7fffffffu;
  unsigned narrow = 0;
  if (magnitude > 0x7f800000u) {
    const unsigned payload = magnitude >> 13 & 0x3ffu;
    narrow = 0x7c00u | (payload != 0 ? payload : 0x200u);
  } else if (magnitude >= 0x477ff000u) {  // 65520, half way between the largest f16 and 2^16
    narrow = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14, the smallest normal f16
    narrow = shift_right_to_nearest_even(magnitude - (112u << 23), 13);
  } else if (magnitude > 0x33000000u) {  // 2^-25, half of the smallest subnormal, which ties to zero
    narrow = shift_right_to_nearest_even((magnitude & 0x7fffffu) | 0x800000u, 126u - (magnitude >> 23));
  }
  return static_cast<unsigned short>(sign | narrow);
}

}  // namespace ce
