#pragma once
/// \file
/// Element types and the other small words that every room shares.

#include <cstdint>
#include <optional>
#include <string_view>

#include "ce/export.hpp"
#include "ce/language.hpp"

struct CUstream_st;

namespace ce {

/// The driver's CUstream and the runtime API's cudaStream_t; nullptr is the legacy default stream.
/// The host device ignores it.
using Stream = CUstream_st*;

enum class DType : std::uint8_t { f32, f16, bf16, i32, i64, u8 };

/// Bytes of one element.
[[nodiscard]] constexpr int size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::i64: return 8;
    case DType::u8: return 1;
  }
  return 0;
}

[[nodiscard]] constexpr bool is_floating(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

[[nodiscard]] CE_API std::string_view name(DType dtype) noexcept;
[[nodiscard]] CE_API std::optional<DType> parse_dtype(std::string_view text) noexcept;

/// How the losses of the rows become the result, as in PyTorch's `reduction`.
enum class Reduction : std::uint8_t { none, mean, sum };

[[nodiscard]] CE_API std::string_view name(Reduction reduction) noexcept;
[[nodiscard]] CE_API std::optional<Reduction> parse_reduction(std::string_view text) noexcept;

}  // namespace ce
