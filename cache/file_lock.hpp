#pragma once
/// \file
/// A lock on a file beside a database, which the operating system releases when its holder dies.

#include <sys/types.h>

#include <filesystem>
#include <optional>

#include "base/own_descriptor.hpp"

namespace ce::cache {

/// At most one thread of one process holds it at a time. It ends with its owner.
class FileLock {
 public:
  /// Never waits. The file is there as long as the lock, or until the next one where a process died. All users of the
  /// database may lock it.
  /// \param database  the real path of the one that the file lies beside
  /// \returns nothing while another holds it
  /// \throws DatabaseError where the folder cannot be written, its file system has no locks, or a stranger's file is in
  /// the way
  [[nodiscard]] static std::optional<FileLock> take(const std::filesystem::path& file,
                                                    const std::filesystem::path& database);
  /// Where no lock can be had: one that keeps no other process out.
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

/// Removes the file of a lock whose process was killed: where it is empty, of this user, and no process holds it.
void remove_abandoned(const std::filesystem::path& file);

}  // namespace ce::cache
