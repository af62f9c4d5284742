#pragma once
/// \file
/// Whose files they are: code is taken only from those that only this user and root can have written.

#include <filesystem>
#include <string>

namespace ce::cache {

/// Who else can have written what a database holds, as "X belongs to user 1000" or "X can be written by others"; empty
/// where only this user and root can. Looks at the file, at what SQLite keeps beside it, and at each folder and link on the
/// way to it. In a folder with the sticky bit, such as /tmp, others cannot replace what is one's own.
[[nodiscard]] std::string other_writer_of(const std::filesystem::path& database);

/// A log or journal beside a database that its owner cannot have written, as "X belongs to user 1000"; empty where there is
/// none, and for a database that others may write, too. SQLite would take it for the owner's.
[[nodiscard]] std::string foreign_log_of(const std::filesystem::path& database);

}  // namespace ce::cache
