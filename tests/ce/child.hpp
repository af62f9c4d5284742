#pragma once
/// \file
/// Another process: this program with a database in place of its tests.

#include <filesystem>
#include <string>

namespace ce::test {

struct ChildResult {
  int status = -1;  ///< exit status; minus the signal when one ended it
  std::string
      output;  ///< "ORIGIN COMPILED\n" of a softmax of 100 columns, or the error; then the warnings, each a line
};

/// Runs with this process's environment.
/// \param database  of a Context of its own, on the tested device; empty: the default Context runs
[[nodiscard]] ChildResult run_in_a_child(const std::filesystem::path& database);

}  // namespace ce::test
