#pragma once
/// \file
/// Prints results and remarks for people.

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "base/printable.hpp"

namespace ce::cli {

/// Prints a remark to standard error. If that is closed or full, only the remark is lost.
template <class... Values>
void say(fmt::format_string<Values...> text, Values&&... values) {
  const std::string line = printable(fmt::format(text, std::forward<Values>(values)...), Lines::many);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

/// Writes to the standard output, or to standard error.
/// \throws std::system_error
void write_text(std::FILE* stream, std::string_view text);
/// Writes what the standard output, also as std::cout, still holds.
/// \throws std::system_error if that or an earlier part could not be written
void flush_standard_output();

/// Prints a result, which may quote databases and files, to a stream; by default to the standard output.
template <class... Values>
void print_text(std::FILE* stream, fmt::format_string<Values...> text, Values&&... values) {
  write_text(stream, printable(fmt::format(text, std::forward<Values>(values)...), Lines::many));
}
template <class... Values>
void print_text(fmt::format_string<Values...> text, Values&&... values) {
  print_text(stdout, text, std::forward<Values>(values)...);
}

}  // namespace ce::cli
