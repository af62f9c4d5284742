#pragma once
/// \file
/// Runs ce-tune, from its arguments to its exit status.

namespace ce::cli {

/// Prints results to standard output and errors to standard error.
/// \returns the exit status, an ExitCode
[[nodiscard]] int run(int argument_count, const char* const* arguments);

}  // namespace ce::cli
