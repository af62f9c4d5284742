#pragma once
/// \file
/// Problems in a file of comma-separated values.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/problem_options.hpp"
#include "generator/problem.hpp"

namespace ce::cli {

/// The problems of a file whose first line names its columns: op, dtype, rows, cols, and any other problem
/// option by its name without dashes. A field holds what follows the option; of an option that takes nothing,
/// true or false; an empty one leaves the option out. A field with commas, in quotes, is a list, and its
/// record makes a problem of each combination. No problem is there twice.
/// \param given  what the command line says: its lists take the place of those columns; other options belong
/// into the file
/// \throws NotFound where the file cannot be read, InvalidArgument naming file, line and column
[[nodiscard]] std::vector<generator::Problem> problems_of(const std::filesystem::path& file,
                                                          const ProblemOptions& given);
/// The same of the text of such a file. \param name  of the file, for messages
[[nodiscard]] std::vector<generator::Problem> problems_in(std::string_view text, const std::string& name,
                                                          const ProblemOptions& given);

}  // namespace ce::cli
