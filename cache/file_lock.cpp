#include "cache/file_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "cache/file_system.hpp"
#include "ce/error.hpp"

namespace ce::cache {
namespace {

/// Whether the path still leads to the open file: the previous holder may have removed it.
bool is_at(const std::filesystem::path& file, int descriptor) {
  struct stat open {
  }, named{};
  return ::fstat(descriptor, &open) == 0 && ::lstat(file.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

[[noreturn]] void fail(const std::filesystem::path& file, const char* what) {
  throw DatabaseError(fmt::format("cannot {} a file in {} ({})", what, file.parent_path().string(),
                                  std::generic_category().message(errno)));
}

/// Whether the lock file is trusted: it belongs to this user, root or the database's owner; or to any user in a folder
/// that is not world-writable.
bool is_acceptable(const std::filesystem::path& database, const struct stat& file) {
  if (!S_ISREG(file.st_mode)) return false;
  if (file.st_uid == ::geteuid() || file.st_uid == 0) return true;
  struct stat status {};
  if (::stat(database.c_str(), &status) == 0 && file.st_uid == status.st_uid) return true;
  return ::stat(database.parent_path().c_str(), &status) == 0 && (status.st_mode & S_IWOTH) == 0;
}

/// \returns a descriptor, or a negative number and sets errno
int open_or_create(const std::filesystem::path& file, const std::filesystem::path& database) {
  for (;;) {
    // Opened without O_CREAT: kernels refuse that for other users' files in world-writable folders.
    const int there = ::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (there >= 0 || errno != ENOENT) return there;
    if (const std::error_code error = create_beside(database, file);
        error && error != std::errc::file_exists) {
      errno = error.value();
      return -1;
    }
  }
}

}  // namespace

std::optional<FileLock> FileLock::take(const std::filesystem::path& file,
                                       const std::filesystem::path& database) {
  for (;;) {
    FileLock lock;
    lock.descriptor_ = OwnDescriptor([&] { return open_or_create(file, database); });
    if (lock.descriptor_.get() < 0) fail(file, "open");
    struct stat status {};
    if (::fstat(lock.descriptor_.get(), &status) != 0) fail(file, "examine");
    if (!is_acceptable(database, status))
      throw DatabaseError(fmt::format("{} belongs to user {}", file.string(), status.st_uid));
    while (::flock(lock.descriptor_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return std::nullopt;
      if (errno != EINTR) fail(file, "lock");
    }
    if (!is_at(file, lock.descriptor_.get())) continue;
    lock.file_ = file;
    lock.owner_ = ::getpid();
    return lock;
  }
}

void remove_abandoned(const std::filesystem::path& file) {
  const OwnDescriptor held(
      [&] { return ::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); });
  struct stat status {};
  if (held.get() < 0 || ::fstat(held.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_uid != ::geteuid() || status.st_size != 0 || ::flock(held.get(), LOCK_EX | LOCK_NB) != 0)
    return;
  if (is_at(file, held.get())) ::unlink(file.c_str());
}

FileLock::~FileLock() {
  // A child of fork() that has a copy of this holds no lock.
  if (descriptor_.get() < 0 || owner_ != ::getpid()) return;
  ::unlink(file_.c_str());
  ::flock(descriptor_.get(), LOCK_UN);  // a child that was forked just now may still have it open
}

void FileLock::swap(FileLock& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(owner_, other.owner_);
}

}  // namespace ce::cache
