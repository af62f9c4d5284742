#pragma once
/// \file
/// Errors as ce-tune tells them.

#include <exception>
#include <map>
#include <string>

#include "cli/exit_codes.hpp"

namespace ce::cli {

/// An error taken apart: what goes to standard error as one line and, with --json, to standard output as an
/// object.
struct Failure {
  ExitCode code = ExitCode::internal;
  /// "kind" and "message", and what the type of error adds: "argument", "value", "expected"; "call", "code";
  /// "log", "source_path". "place" is the line of ce that threw.
  std::map<std::string, std::string> fields;

  /// "ce-tune: not found: no key begins with abcd": never more than one line.
  [[nodiscard]] std::string line() const;
};

[[nodiscard]] Failure describe(const std::exception& error);
/// A command line that does not parse.
[[nodiscard]] Failure usage_failure(const std::string& message);

}  // namespace ce::cli
