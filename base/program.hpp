#pragma once
/// \file
/// Programs that are started to do one thing and end: bounded in time and in what they write.

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
  int status = -1;      ///< the exit status; -1 where a signal ended it, or this process keeps no statuses
  std::string output;   ///< what it wrote to standard output
  std::string errors;   ///< the beginning of what it wrote to standard error
  std::string failure;  ///< why it was cut off; empty where it ended by itself

  [[nodiscard]] bool succeeded() const noexcept { return failure.empty() && status == 0; }
};

/// Runs a program in a process group of its own, with `input` as its standard input. One that takes longer, or writes
/// more, than the bounds is killed with its whole group.
/// \param arguments  the program, which is looked for in PATH, and what it is given
/// \throws Unsupported where it cannot be started
[[nodiscard]] ProgramEnd run_program(const std::vector<std::string>& arguments, std::string_view input,
                                     const ProgramBounds& bounds);

}  // namespace ce
