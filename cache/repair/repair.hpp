#pragma once
/// \file
/// Replaces a damaged database by a new one with its readable contents.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "cache/repair/salvage.hpp"
#include "cache/store.hpp"

namespace ce::cache {

/// Identifies the file at a path: a repair changes it. All members are 0 if there is no file.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  off_t bytes = 0;                 ///< set by with_change() only, like the next member
  std::int64_t changed_at_ns = 0;  ///< time of the last change
  bool has_log = false;            ///< a log with commits

  [[nodiscard]] static FileId of(const std::filesystem::path& path) noexcept;
  /// Like of(), but also changes when the file has been written.
  [[nodiscard]] static FileId with_change(const std::filesystem::path& path) noexcept;
  friend bool operator==(const FileId&, const FileId&) = default;
};

struct Repair {
  /// the readable contents, if the damaged file cannot be moved; else null: the path leads to a new file
  std::unique_ptr<Store> memory;
  /// what happened, for people; empty if another process was faster
  std::string report;
};

/// Copies the readable contents of the damaged file into a draft beside it, renames the file and its logs to
/// PATH.corrupt-DATE (UTC), and the draft to PATH. One process at a time does so; a program that has the damaged file
/// open notices by its FileId. If the process is killed, either the damaged file is still at the path, or there is no
/// file and create_file() finishes the repair.
/// \param damaged  the file that was found to be damaged
/// \param cause    cause of the repair, for the report
/// \throws DatabaseError, SQLite::Exception if not even a database in memory can be created
[[nodiscard]] Repair repair(const std::filesystem::path& named, FileId damaged, const std::string& cause);

/// Creates the file, as create_database_file(), and its folders (0700) if they are missing; otherwise does nothing.
/// Waits for a process that repairs a file of this name, and finishes a repair whose process was killed.
/// \throws Locked if another process repairs it for too long; DatabaseError
void create_file(const std::filesystem::path& named);

/// The absolute path of an existing file. Waits for a process that repairs a file of this name.
/// \throws NotFound; Locked as create_file(); DatabaseError if an unfinished repair needs a program that may write
[[nodiscard]] std::filesystem::path existing_file(const std::filesystem::path& path);

}  // namespace ce::cache
