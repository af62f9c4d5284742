#include "runtime/cuda/keep_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace ce::runtime::cuda {

namespace fs = std::filesystem;

std::string keep_source(const CompileRequest& request) {
  try {
    std::string folder = fs::temp_directory_path() / "ce-compile-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr)
      return fmt::format("nowhere: {}: {}", folder, std::strerror(errno));
    const auto write = [&](const std::string& name, const std::string& text) {
      // Nothing is written outside the folder, whatever the name.
      const fs::path path = fs::path(folder) / fs::path(name).lexically_normal().filename();
      std::ofstream file(path, std::ios::binary);
      file << text;
      file.close();
      if (!file) throw fs::filesystem_error("cannot write", path, std::make_error_code(std::errc::io_error));
      return path.string();
    };
    for (const auto& [name, text] : request.headers) write(name, text);
    std::string file_name = request.name.empty() ? "kernel" : request.name;
    std::replace(file_name.begin(), file_name.end(), '/', '_');
    return write(file_name + ".cu", request.text);
  } catch (const fs::filesystem_error& error) {
    return fmt::format("nowhere: {}", error.what());
  }
}

}  // namespace ce::runtime::cuda
