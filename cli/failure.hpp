#pragma once
/// \file
/// Formats errors for ce-tune's output.

#include <exception>
#include <map>
#include <string>

#include "cli/exit_codes.hpp"

namespace ce::cli {

/// An error in parts: ce-tune prints one line to standard error and, with --json, an object to standard output.
struct Failure {
  ExitCode code = ExitCode::internal;
  /// "kind" and "message", and fields of the error's type: "argument", "value", "expected"; "call", "code"; "log",
  /// "source_path". "place" is the source line in ce that threw.
  std::map<std::string, std::string> fields;

  /// "ce-tune: not found: no key begins with abcd": never more than one line.
  [[nodiscard]] std::string line() const;
};

[[nodiscard]] Failure describe(const std::exception& error);
/// The failure for a command line that cannot be parsed.
[[nodiscard]] Failure usage_failure(const std::string& message);

}  // namespace ce::cli
