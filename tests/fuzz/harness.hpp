#pragma once
/// \file
/// What the harnesses share. Each reads bytes as a part of `ce` that takes text or bytes from outside does, and ends the
/// process where a property does not hold; anything thrown but a ce::Error ends it too.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "ce/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace ce::fuzz {

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// \param property  that must hold, in words
inline void require(bool holds, const char* property) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", property);
  std::abort();
}

/// What the parser made of its input; nothing where it refused it.
template <class Parser>
auto parsed(const Parser& parser) -> std::optional<decltype(parser())> {
  try {
    return parser();
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace ce::fuzz
