#pragma once
/// \file
/// Text inside of markup.

#include <string>
#include <string_view>

namespace ce::cli {

/// Fit for the text and the attributes of HTML, XML and SVG. It is printable(), tabs and newlines stay.
[[nodiscard]] std::string escaped(std::string_view text);

}  // namespace ce::cli
