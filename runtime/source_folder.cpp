#include "runtime/source_folder.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/file_size_signal.hpp"
#include "ce/error.hpp"

namespace ce::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view in_use = "ce-source-", kept = "ce-compile-";

void write_file(const fs::path& path, std::string_view text) {
  const FileSizeSignalBlock no_signal;
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) throw cannot("write", path);
}

void write_headers(const fs::path& folder, const CompileRequest& request) {
  for (const auto& [name, text] : request.headers) {
    const fs::path relative = fs::path(name).lexically_normal();
    if (name.empty() || relative.is_absolute() || *relative.begin() == "..")
      throw InvalidArgument("header name", name, "a path below the source's own folder");
    std::error_code error;
    fs::create_directories((folder / relative).parent_path(), error);
    write_file(folder / relative, text);  // names the failed write in its error
  }
}

/// The name, cut to the length that file systems allow, with special characters of shells and compilers replaced.
std::string file_name(std::string_view name) {
  std::string file(name.substr(0, 100));
  for (char& c : file)
    if (std::string_view("/\\ \t\n\"'").find(c) != std::string_view::npos) c = '-';
  return (file.empty() || file.front() == '-' || file.front() == '.' ? "kernel" + file : file) + ".cu";
}

}  // namespace

std::string not_kept(const Error& why) { return fmt::format("nowhere: {}", why.what()); }

void remove_abandoned_sources() {
  remove_abandoned_folders(in_use);
  remove_old_folders(kept);
}

namespace {

/// \returns the prefix of new folders
std::string_view cleaned_up() {
  // Threads do not wait for each other here: in a child of fork() the first one may exist only in the parent.
  static std::atomic_flag once;
  if (!once.test_and_set()) remove_abandoned_sources();
  return in_use;
}

}  // namespace

SourceFolder::SourceFolder(const CompileRequest& request)
    : folder_(cleaned_up()), file_(file_name(request.name)) {
  write_headers(path(), request);
  write_file(path() / file_, request.text);
}

std::string SourceFolder::keep() try {
  const fs::path folder = folder_.keep(kept);
  remove_old_folders(kept);
  return (folder / file_).string();
} catch (const Error& error) {
  return not_kept(error);
}

}  // namespace ce::runtime
