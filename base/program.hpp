#pragma once
/// \file
/// Runs short programs, with bounds on their time and output.

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ce {

struct ProgramBounds {
  std::chrono::milliseconds time;
  std::size_t most_output = std::size_t{1} << 20;
};

/// How a program ended.
struct ProgramEnd {
  int status = -1;      ///< the exit status; -1 if a signal ended it, or if this process keeps no statuses
  std::string output;   ///< everything written to standard output
  std::string errors;   ///< the beginning of what was written to standard error
  std::string failure;  ///< why it was killed; empty if it ended by itself

  [[nodiscard]] bool succeeded() const noexcept { return failure.empty() && status == 0; }
};

/// Runs a program in a process group of its own, with `input` as its standard input. A program that takes longer or
/// writes more than the bounds allow is killed with its whole group.
/// \param arguments  the program, which is looked for in PATH, and its arguments
/// \throws Unsupported if it cannot be started
[[nodiscard]] ProgramEnd run_program(const std::vector<std::string>& arguments, std::string_view input,
                                     const ProgramBounds& bounds);

}  // namespace ce
