#include "cli/spool.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace ce::cli {

std::fstream open_spool() {
  std::string path = (std::filesystem::temp_directory_path() / "ce-spool-XXXXXX").string();
  const int descriptor = ::mkstemp(path.data());
  if (descriptor < 0) throw std::system_error(errno, std::generic_category(), "cannot create " + path);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const int error = errno;
  ::unlink(path.c_str());
  ::close(descriptor);
  if (!file) throw std::system_error(error, std::generic_category(), "cannot open " + path);
  return file;
}

}  // namespace ce::cli
