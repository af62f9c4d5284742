#include "cli/say.hpp"

#include <cerrno>
#include <iostream>
#include <system_error>

namespace ce::cli {
namespace {

[[noreturn]] void writing_failed(const std::FILE* stream) {
  throw std::system_error(
      errno != 0 ? errno : EIO, std::generic_category(),
      stream == stderr ? "cannot write to standard error" : "cannot write to standard output");
}

}  // namespace

void write_text(std::FILE* stream, std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stream) != text.size()) writing_failed(stream);
}

void flush_standard_output() {
  errno = 0;
  if (!std::cout.flush() || std::fflush(stdout) != 0 || std::ferror(stdout) != 0) writing_failed(stdout);
}

}  // namespace ce::cli
