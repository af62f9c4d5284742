#pragma once
/// \file
/// Escapes text for markup.

#include <string>
#include <string_view>

namespace ce::cli {

/// Escapes text for contents and attributes of HTML, XML and SVG. It is also made printable(); tabs and newlines stay.
[[nodiscard]] std::string escaped(std::string_view text);

}  // namespace ce::cli
