#pragma once
/// \file
/// Environment variables. The product reads them only through these functions.

#include <optional>
#include <string>

namespace ce {

/// The value of an environment variable; an empty one counts as unset. In a program with more rights than the user who
/// started it (set-uid, set-gid, file capabilities) all count as unset: the variables name code and files, and that
/// user sets them.
[[nodiscard]] std::optional<std::string> environment_variable(const char* name);

/// A whole number, or `otherwise` where the variable is not set. \throws InvalidArgument naming the variable
[[nodiscard]] int number_of_environment(const char* name, int otherwise, int lowest, int highest);

/// The environment for programs that this process starts: its own or, in a program with such rights, only a safe PATH.
[[nodiscard]] char* const* environment_of_programs() noexcept;

}  // namespace ce
