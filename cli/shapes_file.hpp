#pragma once
/// \file
/// Reads problems from a file of comma-separated values.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/problem_options.hpp"
#include "generator/problem.hpp"

namespace ce::cli {

/// The problems of a file whose first line names its columns: op, dtype, rows, cols, and any other problem option by
/// its name without dashes. A field contains the option's value; for an option without a value, true or false; an empty
/// field omits the option. A quoted field with commas is a list, and its record gives a problem for each combination.
/// Repeated problems are dropped.
/// \param given  the command line: its lists replace columns; other options must be in the file
/// \throws NotFound if the file cannot be read, InvalidArgument naming file, line and column
[[nodiscard]] std::vector<generator::Problem> problems_of(const std::filesystem::path& file,
                                                          const ProblemOptions& given);
/// Parses the text of such a file. \param name  name of the file, for messages
[[nodiscard]] std::vector<generator::Problem> problems_in(std::string_view text, const std::string& name,
                                                          const ProblemOptions& given);

}  // namespace ce::cli
