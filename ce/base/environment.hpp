#pragma once
/// \file
/// Environment variables.

#include <cstdlib>
#include <optional>
#include <string>

namespace ce {

/// The value of an environment variable; an empty one counts as unset.
[[nodiscard]] inline std::optional<std::string> environment_variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

}  // namespace ce
