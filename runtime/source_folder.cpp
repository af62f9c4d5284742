#include "runtime/source_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string_view>
#include <system_error>

#include "ce/base/error.hpp"

namespace ce::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view in_use = "ce-source-", kept = "ce-compile-";

Error failed(std::string_view what, const fs::path& path) {
  return Error(ErrorKind::compile,
               fmt::format("cannot {} {}: {}", what, path.string(), std::generic_category().message(errno)));
}

fs::path new_folder(std::string_view prefix) {
  std::string pattern = (temporary_folder() / fmt::format("{}XXXXXX", prefix)).string();
  if (::mkdtemp(pattern.data()) == nullptr) throw failed("create the temporary folder", pattern);
  return pattern;
}

/// Holds the folder, unless another process does. Where the file system has no locks, nobody does.
OwnDescriptor lock(const fs::path& folder) {
  return OwnDescriptor([&] {
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor < 0 || ::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
    ::close(descriptor);
    return -1;
  });
}

bool is_old_and_own(const fs::path& folder) {
  constexpr std::chrono::minutes about_to_be_held{1};
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid())
    return false;
  const auto changed = std::chrono::system_clock::from_time_t(status.st_mtime);
  return std::chrono::system_clock::now() - changed > about_to_be_held;
}

void write_file(const fs::path& path, std::string_view text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) throw failed("write", path);
}

void write_headers(const fs::path& folder, const CompileRequest& request) {
  for (const auto& [name, text] : request.headers) {
    const fs::path relative = fs::path(name).lexically_normal();
    if (name.empty() || relative.is_absolute() || *relative.begin() == "..")
      throw InvalidArgument("header name", name, "a path below the source's own folder");
    std::error_code error;
    fs::create_directories((folder / relative).parent_path(), error);
    write_file(folder / relative, text);  // says what was wrong
  }
}

/// As much of the name as a file system takes, and nothing that a shell or a compiler would read otherwise.
std::string file_name(std::string_view name) {
  std::string file(name.substr(0, 100));
  for (char& c : file)
    if (std::string_view("/\\ \t\n\"'").find(c) != std::string_view::npos) c = '-';
  return (file.empty() || file.front() == '-' || file.front() == '.' ? "kernel" + file : file) + ".cu";
}

}  // namespace

std::string not_kept(const Error& why) { return fmt::format("nowhere: {}", why.what()); }

fs::path temporary_folder() {
  std::error_code error;
  fs::path folder = fs::temp_directory_path(error);
  if (error)
    throw Error(ErrorKind::compile,
                fmt::format("no folder for temporary files ({}); name one in TMPDIR", error.message()));
  return folder;
}

// What cannot be looked at or removed is litter, which is not worth an error.
void remove_abandoned_sources() {
  std::error_code error, ignored;
  fs::directory_iterator at(temporary_folder(), error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    const fs::path& path = at->path();
    if (!path.filename().string().starts_with(in_use) || !is_old_and_own(path)) continue;
    if (const OwnDescriptor held = lock(path); held.get() >= 0) fs::remove_all(path, ignored);
  }
}

SourceFolder::SourceFolder(const CompileRequest& request) : file_(file_name(request.name)) {
  static std::once_flag once;
  std::call_once(once, remove_abandoned_sources);
  path_ = new_folder(in_use);
  try {
    lock_ = lock(path_);
    write_headers(path_, request);
    write_file(path_ / file_, request.text);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    throw;
  }
}

SourceFolder::~SourceFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

std::string SourceFolder::keep() try {
  const fs::path place = new_folder(kept);
  if (::rename(path_.c_str(), place.c_str()) != 0) {
    const Error error = failed("keep the source in", place);
    ::rmdir(place.c_str());
    throw error;
  }
  path_.clear();
  return (place / file_).string();
} catch (const Error& error) {
  return not_kept(error);
}

}  // namespace ce::runtime
