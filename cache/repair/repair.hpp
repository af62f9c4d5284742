#pragma once
/// \file
/// A damaged database is set aside, and what can be read of it goes on.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "cache/repair/salvage.hpp"
#include "cache/store.hpp"

namespace ce::cache {

/// Which file a path leads to: another one after a repair. All 0 where there is no file.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  off_t bytes = 0;                 ///< of with_change() only, as the next
  std::int64_t changed_at_ns = 0;  ///< time of the last change
  bool has_log = false;            ///< of commits

  [[nodiscard]] static FileId of(const std::filesystem::path& path) noexcept;
  /// Another one, too, after the file has been written.
  [[nodiscard]] static FileId with_change(const std::filesystem::path& path) noexcept;
  friend bool operator==(const FileId&, const FileId&) = default;
};

struct Repair {
  /// What could be read, where the damaged file cannot be moved; else null: the path leads to a new file.
  std::unique_ptr<Store> memory;
  /// What happened, for people; empty where another process was faster.
  std::string report;
};

/// Copies what can be read of the damaged file into a draft beside it, renames the file and its logs to
/// PATH.corrupt-DATE (UTC), and the draft to PATH. One process at a time does so; a program that has the damaged file
/// open still finds another FileId. Where the process is killed either the damaged file is still at the path, or there is none and
/// create_file() goes on with it.
/// \param damaged  the file that was seen to be damaged
/// \param cause  of the repair, for the report
/// \throws DatabaseError, SQLite::Exception where not even a database in memory can be had
[[nodiscard]] Repair repair(const std::filesystem::path& named, FileId damaged, const std::string& cause);

/// Creates the file, as create_database_file(), and its folders (0700) where they are missing; otherwise touches
/// nothing. Waits for a process that repairs one of this name, and goes on with a repair whose process was killed.
/// \throws Locked where another process repairs it for too long; DatabaseError
void create_file(const std::filesystem::path& named);

/// The absolute path of a file that is there. Waits for a process that repairs one of this name.
/// \throws NotFound; Locked as create_file(); DatabaseError where a repair waits for a program that may write
[[nodiscard]] std::filesystem::path existing_file(const std::filesystem::path& path);

}  // namespace ce::cache
