#pragma once
/// \file
/// Parses comma-separated values (RFC 4180).

#include <string>
#include <string_view>
#include <vector>

namespace ce::cli {

struct CsvRecord {
  int line = 0;  ///< the line at which it begins, from 1
  std::vector<std::string> fields;
};

/// The records of the text. Quoted fields may contain commas, line ends and doubled quotes; spaces around an unquoted
/// field are removed. Blank lines are skipped.
/// \param name  name of the file, for messages
/// \throws InvalidArgument naming file and line, for quotes that do not end, or end inside a field
[[nodiscard]] std::vector<CsvRecord> parse_csv(std::string_view text, std::string_view name);

}  // namespace ce::cli
