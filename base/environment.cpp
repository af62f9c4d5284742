#include "base/environment.hpp"

#include <fmt/format.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <system_error>

#include "ce/error.hpp"

namespace ce {

std::optional<std::string> environment_variable(const char* name) {
  const char* value = ::secure_getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

int number_of_environment(const char* name, int otherwise, int lowest, int highest) {
  const std::optional<std::string> text = environment_variable(name);
  if (!text) return otherwise;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < lowest || value > highest)
    throw InvalidArgument(name, *text, fmt::format("a whole number from {} to {}", lowest, highest));
  return value;
}

char* const* environment_of_programs() noexcept {
  static char path[] = "PATH=/usr/local/bin:/usr/bin:/bin";
  static char* const safe[] = {path, nullptr};
  return ::getauxval(AT_SECURE) != 0 ? safe : environ;
}

}  // namespace ce
