#pragma once
/// \file
/// SQLite's files, opened to be read and nothing else.

#include <filesystem>
#include <memory>
#include <string>

namespace SQLite {
class Database;
}

namespace ce::cache {

/// How long SQLite waits for a lock.
inline constexpr int busy_timeout_ms = 5000;

/// For SQLite's OPEN_URI: a file that no program writes, without locks and files of SQLite's own beside it.
[[nodiscard]] std::string immutable_uri(const std::filesystem::path& path);

/// Opens a file for reading, with its log and with locks, and creates and removes nothing.
/// \throws SQLite::Exception, also where that is not possible: immutable_uri() may be
[[nodiscard]] std::unique_ptr<SQLite::Database> open_without_traces(const std::filesystem::path& path,
                                                                    int flags = 0);

}  // namespace ce::cache
