#pragma once
/// \file
/// Results and remarks for people.

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

#include "base/printable.hpp"

namespace ce::cli {

/// Remarks beside a result, to standard error. Where that is closed or full, the remark is lost and nothing else.
template <class... Values>
void say(fmt::format_string<Values...> text, Values&&... values) {
  const std::string line = printable(fmt::format(text, std::forward<Values>(values)...), Lines::many);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

/// To a stream, the standard output where none is named: a result that may quote databases and files.
template <class... Values>
void print_text(std::FILE* stream, fmt::format_string<Values...> text, Values&&... values) {
  fmt::print(stream, "{}", printable(fmt::format(text, std::forward<Values>(values)...), Lines::many));
}
template <class... Values>
void print_text(fmt::format_string<Values...> text, Values&&... values) {
  print_text(stdout, text, std::forward<Values>(values)...);
}

}  // namespace ce::cli
