#include "tuner/verify/elements.hpp"

#include <cstring>

#include "templates/device/half.cuh"

namespace ce::generator {
namespace {

/// The stored type of an element, and its value.
template <class T>
struct Plain {
  using Stored = T;
  static T stored(double value) noexcept { return static_cast<T>(value); }
  static double value(T stored) noexcept { return static_cast<double>(stored); }
};

struct F16 {
  using Stored = unsigned short;
  static Stored stored(double value) noexcept { return f16_bits_from_float(static_cast<float>(value)); }
  static double value(Stored stored) noexcept { return static_cast<double>(float_from_f16_bits(stored)); }
};

struct BF16 {
  using Stored = unsigned short;
  static Stored stored(double value) noexcept { return bf16_bits_from_float(static_cast<float>(value)); }
  static double value(Stored stored) noexcept { return static_cast<double>(float_from_bf16_bits(stored)); }
};

template <class Visit>
void with(DType dtype, const Visit& visit) noexcept {
  switch (dtype) {
    case DType::f32: return visit(Plain<float>{});
    case DType::f16: return visit(F16{});
    case DType::bf16: return visit(BF16{});
    case DType::i32: return visit(Plain<std::int32_t>{});
    case DType::i64: return visit(Plain<std::int64_t>{});
    case DType::u8: return visit(Plain<std::uint8_t>{});
  }
}

}  // namespace

void read_elements(DType dtype, const std::byte* array, std::int64_t first, std::int64_t step,
                   std::span<double> values) noexcept {
  with(dtype, [&]<class Format>(Format) {
    using Stored = typename Format::Stored;
    constexpr auto size = static_cast<std::int64_t>(sizeof(Stored));
    const std::byte* address = array + first * size;
    for (double& value : values) {
      Stored element;
      std::memcpy(&element, address, sizeof element);
      value = Format::value(element);
      address += step * size;
    }
  });
}

void write_elements(DType dtype, std::byte* array, std::int64_t first, std::int64_t step,
                    std::span<double> values) noexcept {
  with(dtype, [&]<class Format>(Format) {
    using Stored = typename Format::Stored;
    constexpr auto size = static_cast<std::int64_t>(sizeof(Stored));
    std::byte* address = array + first * size;
    for (double& value : values) {
      const Stored element = Format::stored(value);
      std::memcpy(address, &element, sizeof element);
      value = Format::value(element);
      address += step * size;
    }
  });
}

double read_element(DType dtype, const std::byte* array, std::int64_t index) noexcept {
  double value = 0;
  read_elements(dtype, array, index, 1, {&value, 1});
  return value;
}

void write_element(DType dtype, std::byte* array, std::int64_t index, double value) noexcept {
  write_elements(dtype, array, index, 1, {&value, 1});
}

double largest(DType dtype) noexcept {
  return dtype == DType::f16 ? 65504. : dtype == DType::bf16 ? 0x1.fep127 : 0x1.fffffep127;
}

}  // namespace ce::generator
