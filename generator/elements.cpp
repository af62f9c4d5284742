#include "generator/elements.hpp"

#include <cstring>

#include "templates/half.cuh"

namespace ce::generator {
namespace {

template <class T>
T get(const std::byte* array, std::int64_t index) noexcept {
  T value;
  std::memcpy(&value, array + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void put(std::byte* array, std::int64_t index, T value) noexcept {
  std::memcpy(array + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

}  // namespace

double read_element(DType dtype, const std::byte* array, std::int64_t index) noexcept {
  switch (dtype) {
    case DType::f16: return static_cast<double>(float_from_f16_bits(get<unsigned short>(array, index)));
    case DType::bf16: return static_cast<double>(float_from_bf16_bits(get<unsigned short>(array, index)));
    default: return static_cast<double>(get<float>(array, index));
  }
}

void write_element(DType dtype, std::byte* array, std::int64_t index, double value) noexcept {
  const auto narrow = static_cast<float>(value);
  switch (dtype) {
    case DType::f16: put(array, index, f16_bits_from_float(narrow)); break;
    case DType::bf16: put(array, index, bf16_bits_from_float(narrow)); break;
    default: put(array, index, narrow); break;
  }
}

void write_index(DType dtype, std::byte* array, std::int64_t index, std::int64_t value) noexcept {
  if (dtype == DType::i32)
    put(array, index, static_cast<std::int32_t>(value));
  else
    put(array, index, value);
}

}  // namespace ce::generator
