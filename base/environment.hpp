#pragma once
/// \file
/// Environment variables. Nothing else of the product reads any.

#include <optional>
#include <string>

namespace ce {

/// The value of an environment variable; an empty one counts as unset. In a program that runs with more rights than who
/// started it (set-uid, set-gid, file capabilities) all count as unset: they name code and files, and come from that
/// user.
[[nodiscard]] std::optional<std::string> environment_variable(const char* name);

/// A whole number, or `otherwise` where the variable is not set. \throws InvalidArgument naming the variable
[[nodiscard]] int number_of_environment(const char* name, int otherwise, int lowest, int highest);

/// The environment for programs that this one starts: its own, or, where it has such rights, only a safe PATH.
[[nodiscard]] char* const* environment_of_programs() noexcept;

}  // namespace ce
