#pragma once
/// \file
/// Text of others (databases, files, compilers, drivers) for terminals and pages.

#include <cstdint>
#include <string>
#include <string_view>

#include "ce/language.hpp"

namespace ce {

enum class Lines : std::uint8_t {
  one,   ///< newlines and tabs are escaped, too: the text is a part of a line
  many,  ///< newlines and tabs stay
};

/// The text with everything visible that a terminal or a page would obey instead of show: control characters (C0, DEL
/// and C1), marks of the direction of text (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069), separators of
/// lines (U+2028, U+2029) and bytes that are no UTF-8. They read "\n", "\t", "\x1b" (a byte) or "\u202e" (a character).
/// What is printable already comes back as it is, so that it may be called again.
[[nodiscard]] std::string printable(std::string_view text, Lines lines = Lines::one);

}  // namespace ce
