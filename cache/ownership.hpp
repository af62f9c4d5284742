#pragma once
/// \file
/// Who owns files: binaries are only read from files that no other user than root can have written.

#include <filesystem>
#include <string>

namespace ce::cache {

/// The other user who can have written a database, as "X belongs to user 1000" or "X can be written by others"; empty
/// if only this user and root can. Checks the file, SQLite's files beside it, and each folder and link on the way to
/// it. In a folder with the sticky bit, such as /tmp, others cannot replace one's own files.
[[nodiscard]] std::string other_writer_of(const std::filesystem::path& database);

/// A log or journal beside a database that its owner cannot have written, as "X belongs to user 1000"; empty if there
/// is none, and for a database that others may write, too. SQLite would use it as if it were the owner's.
[[nodiscard]] std::string foreign_log_of(const std::filesystem::path& database);

}  // namespace ce::cache
