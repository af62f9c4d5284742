#pragma once
/// \file
/// Comma-separated values, as RFC 4180 has them.

#include <string>
#include <string_view>
#include <vector>

namespace ce::cli {

struct CsvRecord {
  int line = 0;  ///< where it begins, from 1
  std::vector<std::string> fields;
};

/// The records of the text. Fields in quotes may hold commas, line ends and, doubled, quotes; spaces around a
/// field without quotes do not belong to it. Lines of spaces are no records.
/// \param name  of the file, for messages
/// \throws InvalidArgument naming file and line, for quotes that do not end, or end inside a field
[[nodiscard]] std::vector<CsvRecord> parse_csv(std::string_view text, std::string_view name);

}  // namespace ce::cli
