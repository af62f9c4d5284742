#pragma once
/// \file
/// Remarks beside a result.

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace ce::cli {

/// To standard error. Where that is closed or full, the remark is lost and nothing else.
template <class... Values>
void say(fmt::format_string<Values...> text, Values&&... values) {
  const std::string line = fmt::format(text, std::forward<Values>(values)...);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace ce::cli
