#include "runtime/temporary_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/file_size_signal.hpp"
#include "ce/error.hpp"

namespace ce::runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char* marker = ".ce-folder";
constexpr std::time_t longest_kept_s = 24 * 60 * 60;
constexpr std::size_t most_kept = 64;

OwnDescriptor open_below(int folder, const char* name, int flags) {
  return OwnDescriptor([&] { return ::openat(folder, name, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK); });
}

OwnDescriptor open_folder(int parent, const char* name) {
  return open_below(parent, name, O_RDONLY | O_DIRECTORY);
}

/// Calls `visit` with the name of each entry until it returns false.
/// \returns false if `visit` did, or if the folder cannot be read
bool visit_entries(int folder, const std::function<bool(const char*)>& visit) {
  const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return false;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(copy), ::closedir);
  if (entries == nullptr) {
    ::close(copy);
    return false;
  }
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && !visit(entry->d_name)) return false;
  }
  return true;
}

// ---- ownership -----------------------------------------------------------------------------------------

/// Whether the name has the form that mkdtemp() makes of `prefix`XXXXXX.
bool is_name(std::string_view name, std::string_view prefix) {
  constexpr std::string_view possible = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  return name.starts_with(prefix) && name.size() == prefix.size() + 6 &&
         name.find_first_not_of(possible, prefix.size()) == std::string_view::npos;
}

std::string marker_text(const struct stat& folder) {
  return fmt::format("ce made this folder (inode {}) and removes it\n", folder.st_ino);
}

bool has_marker(int folder, const struct stat& status) {
  const OwnDescriptor file = open_below(folder, marker, O_RDONLY);
  struct stat found {};
  if (file.get() < 0 || ::fstat(file.get(), &found) != 0) return false;
  const std::string expected = marker_text(status);
  if (!S_ISREG(found.st_mode) || found.st_uid != status.st_uid || found.st_nlink != 1 ||
      found.st_size != static_cast<off_t>(expected.size()))
    return false;
  std::string text(expected.size(), '\0');
  return ::read(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
         text == expected;
}

/// Whether ce created it for this user.
bool is_own(int folder) {
  struct stat status {};
  return ::fstat(folder, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         (status.st_mode & 07777) == 0700 && has_marker(folder, status);
}

void write_marker(int folder) {
  struct stat status {};
  if (::fstat(folder, &status) != 0) throw cannot("look at", "a new folder");
  const std::string text = marker_text(status);
  const FileSizeSignalBlock no_signal;
  const OwnDescriptor file(
      [&] { return ::openat(folder, marker, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400); });
  errno = file.get() < 0 ? errno : ENOSPC;  // a short write sets no errno
  if (file.get() < 0 || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw cannot("write", marker);
}

bool is_later(const timespec& a, const timespec& b) {
  return std::pair(a.tv_sec, a.tv_nsec) > std::pair(b.tv_sec, b.tv_nsec);
}

/// Whether anything below the folder was changed or added after `time`. True for a file that cannot be examined.
bool changed_since(int folder, const timespec& time) {
  return !visit_entries(folder, [&](const char* name) {
    struct stat status {};
    if (::fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0 || is_later(status.st_ctim, time))
      return false;
    if (!S_ISDIR(status.st_mode)) return true;
    const OwnDescriptor inner = open_folder(folder, name);
    return inner.get() >= 0 && !changed_since(inner.get(), time);
  });
}

// ---- removing ------------------------------------------------------------------------------------------

/// Removes everything except the marker of the folder itself, which proves its ownership until the end. Follows no
/// links. A file that cannot be removed is ignored.
void remove_contents(int folder, bool is_top) {
  visit_entries(folder, [&](const char* name) {
    if (is_top && std::string_view(name) == marker) return true;
    if (::unlinkat(folder, name, 0) == 0) return true;
    const OwnDescriptor inner = open_folder(folder, name);
    if (inner.get() < 0) return true;
    remove_contents(inner.get(), false);
    ::unlinkat(folder, name, AT_REMOVEDIR);
    return true;
  });
}

/// \param parent,name  its path; another folder that has replaced it at this path stays
void remove_folder(int parent, const char* name, int folder) {
  remove_contents(folder, true);
  struct stat of_name {};
  struct stat of_folder {};
  if (::fstatat(parent, name, &of_name, AT_SYMLINK_NOFOLLOW) != 0 || ::fstat(folder, &of_folder) != 0 ||
      of_name.st_dev != of_folder.st_dev || of_name.st_ino != of_folder.st_ino)
    return;
  ::unlinkat(folder, marker, 0);
  ::unlinkat(parent, name, AT_REMOVEDIR);
}

/// Locks the folder, unless another process holds it. Fails on file systems without locks.
bool lock(int folder) { return ::flock(folder, LOCK_EX | LOCK_NB) == 0; }

struct Found {
  std::string name;
  OwnDescriptor folder;
  struct stat status;  ///< the marker's status
};

/// ce's folders with that prefix that no process uses.
std::vector<Found> own_folders(int parent, std::string_view prefix) {
  std::vector<Found> found;
  visit_entries(parent, [&](const char* name) {
    if (!is_name(name, prefix)) return true;
    OwnDescriptor folder = open_folder(parent, name);
    if (folder.get() < 0 || !is_own(folder.get()) || !lock(folder.get())) return true;
    struct stat status {};
    if (::fstatat(folder.get(), marker, &status, AT_SYMLINK_NOFOLLOW) == 0)
      found.push_back({name, std::move(folder), status});
    return true;
  });
  return found;
}

/// The user may have replaced it by a link.
OwnDescriptor open_parent() {
  const fs::path path = temporary_folder();
  return OwnDescriptor([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
}

}  // namespace

Error cannot(std::string_view what, const fs::path& path) {
  const int error = errno;
  return Error(ErrorKind::compile,
               fmt::format("cannot {} {}: {}{}", what, path.string(), std::generic_category().message(error),
                           error == EFBIG ? limit_on_files() : ""));
}

fs::path temporary_folder() {
  fs::path folder = environment_variable("TMPDIR").value_or("/tmp");
  std::error_code error;
  if (fs::is_directory(folder, error)) return folder;
  throw Error(ErrorKind::compile,
              fmt::format("there is no folder for temporary files: {} ({}); set TMPDIR to a folder",
                          folder.string(), error ? error.message() : "not a folder"));
}

TemporaryFolder::TemporaryFolder(std::string_view prefix) : owner_(::getpid()) {
  std::string pattern = (temporary_folder() / fmt::format("{}XXXXXX", prefix)).string();
  if (::mkdtemp(pattern.data()) == nullptr) throw cannot("create the temporary folder", pattern);
  path_ = pattern;
  try {
    folder_ = open_folder(AT_FDCWD, path_.c_str());
    if (folder_.get() < 0) throw cannot("open", path_);
    static_cast<void>(lock(folder_.get()));  // locked before the marker says that it may be removed
    write_marker(folder_.get());
  } catch (...) {
    if (folder_.get() >= 0) ::unlinkat(folder_.get(), marker, 0);
    ::rmdir(path_.c_str());
    throw;
  }
}

TemporaryFolder::~TemporaryFolder() {
  if (kept_ || owner_ != ::getpid() || !is_own(folder_.get())) return;
  remove_folder(AT_FDCWD, path_.c_str(), folder_.get());
}

fs::path TemporaryFolder::keep(std::string_view prefix) {
  std::string kept = (temporary_folder() / fmt::format("{}XXXXXX", prefix)).string();
  if (::mkdtemp(kept.data()) == nullptr) throw cannot("create the temporary folder", kept);
  if (::rename(path_.c_str(), kept.c_str()) != 0) {
    const Error error = cannot("keep the source in", kept);
    ::rmdir(kept.c_str());
    throw error;
  }
  path_ = kept;
  kept_ = true;
  ::utimensat(folder_.get(), marker, nullptr,
              AT_SYMLINK_NOFOLLOW);  // the time since when it is kept unchanged
  folder_.reset();
  return path_;
}

void remove_abandoned_folders(std::string_view prefix) {
  const OwnDescriptor parent = open_parent();
  for (const Found& found : own_folders(parent.get(), prefix))
    remove_folder(parent.get(), found.name.c_str(), found.folder.get());
}

void remove_old_folders(std::string_view prefix) {
  const OwnDescriptor parent = open_parent();
  std::vector<Found> kept = own_folders(parent.get(), prefix);
  std::ranges::sort(
      kept, [](const Found& a, const Found& b) { return is_later(a.status.st_mtim, b.status.st_mtim); });
  const std::time_t now = std::time(nullptr);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const auto& [name, folder, status] = kept[i];
    if (i < most_kept && now - status.st_mtim.tv_sec < longest_kept_s) continue;
    if (!changed_since(folder.get(), status.st_ctim)) remove_folder(parent.get(), name.c_str(), folder.get());
  }
}

}  // namespace ce::runtime
