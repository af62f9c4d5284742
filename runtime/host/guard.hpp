#pragma once
/// \file
/// Memory patterns that expose mistakes: guard zones show whether a kernel wrote past the end of an allocation, and
/// NaNs show in its results that it read memory that was never written.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>

namespace ce::runtime::host {

/// A NaN as f32, f16 and bf16, and negative as an integer, so that reading past an end also spoils a result.
inline constexpr std::array<std::byte, 2> guard_pattern = {std::byte{0xa5}, std::byte{0xff}};

inline void write_guard(std::span<std::byte> zone) noexcept {
  for (std::size_t i = 0; i < zone.size(); ++i) zone[i] = guard_pattern[i % 2];
}

[[nodiscard]] inline bool guard_is_intact(std::span<const std::byte> zone) noexcept {
  if (zone.size() < 2) return true;
  const bool starts_right = std::equal(guard_pattern.begin(), guard_pattern.end(), zone.begin());
  return starts_right && std::memcmp(zone.data(), zone.data() + 2, zone.size() - 2) == 0;
}

/// Another NaN as f32, f16 and bf16 than that of the guard.
inline constexpr std::byte nan_byte{0xff};

inline void write_nan(std::span<std::byte> memory) noexcept {
  std::fill(memory.begin(), memory.end(), nan_byte);
}

[[nodiscard]] inline bool is_nan(std::span<const std::byte> memory) noexcept {
  if (memory.empty()) return true;
  return memory.front() == nan_byte && std::memcmp(memory.data(), memory.data() + 1, memory.size() - 1) == 0;
}

}  // namespace ce::runtime::host
