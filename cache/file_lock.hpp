#pragma once
/// \file
/// A lock on a file beside a database, which the operating system releases when its holder dies.

#include <sys/types.h>

#include <filesystem>
#include <optional>

#include "base/own_descriptor.hpp"

namespace ce::cache {

/// A lock that at most one thread of one process holds at a time. Its destructor releases it.
class FileLock {
 public:
  /// Takes the lock; never waits. The file exists as long as the lock; after a process died, until the next lock. All
  /// users of the database may take it.
  /// \param database  the real path of the database beside which the file lies
  /// \returns nothing while another holds it
  /// \throws DatabaseError if the folder cannot be written, its file system has no locks, or the path has an untrusted
  /// file
  [[nodiscard]] static std::optional<FileLock> take(const std::filesystem::path& file,
                                                    const std::filesystem::path& database);
  /// A lock for file systems without locks: it keeps no other process out.
  [[nodiscard]] static FileLock unguarded() { return {}; }

  FileLock(FileLock&& other) noexcept { swap(other); }
  FileLock& operator=(FileLock&& other) noexcept {
    swap(other);
    return *this;
  }
  ~FileLock();

 private:
  FileLock() = default;
  void swap(FileLock& other) noexcept;

  std::filesystem::path file_;
  OwnDescriptor descriptor_;
  pid_t owner_ = 0;
};

/// Removes the lock file of a killed process, if it is empty, belongs to this user, and no process holds it.
void remove_abandoned(const std::filesystem::path& file);

}  // namespace ce::cache
