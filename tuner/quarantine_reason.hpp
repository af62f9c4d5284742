#pragma once
/// \file
/// The reason of a quarantine as text.

#include <string>
#include <string_view>

namespace ce::tuner {

/// The first line of a reason: compilers' messages are long.
[[nodiscard]] std::string first_line(std::string_view text);
/// A reason as it is stored with a quarantine: if it exceeds 64 KiB, its beginning and end, with a line between them
/// that gives the length of the rest. Every import accepts it.
[[nodiscard]] std::string kept_reason(std::string reason);

}  // namespace ce::tuner
