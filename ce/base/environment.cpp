#include "ce/base/environment.hpp"

#include <sys/auxv.h>
#include <unistd.h>

#include <cstdlib>

namespace ce {

std::optional<std::string> environment_variable(const char* name) {
  const char* value = ::secure_getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

char* const* environment_of_programs() noexcept {
  static char path[] = "PATH=/usr/local/bin:/usr/bin:/bin";
  static char* const safe[] = {path, nullptr};
  return ::getauxval(AT_SECURE) != 0 ? safe : environ;
}

}  // namespace ce
