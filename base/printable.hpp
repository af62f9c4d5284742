#pragma once
/// \file
/// Makes foreign text (from databases, files, compilers, drivers) safe for terminals and pages.

#include <cstdint>
#include <string>
#include <string_view>

#include "ce/language.hpp"

namespace ce {

enum class Lines : std::uint8_t {
  one,   ///< newlines and tabs are escaped, too: the text becomes part of a line
  many,  ///< newlines and tabs stay
};

/// The text with everything made visible that a terminal or a page would obey instead of showing: control characters
/// (C0, DEL and C1), marks of text direction (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069), line
/// separators (U+2028, U+2029) and bytes that are not UTF-8. They read "\n", "\t", "\x1b" (a byte) or "\u202e" (a
/// character). Printable text comes back unchanged, so the function may be applied again.
[[nodiscard]] std::string printable(std::string_view text, Lines lines = Lines::one);

}  // namespace ce
