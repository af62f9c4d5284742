#pragma once
/// \file
/// Opens SQLite's files read-only.

#include <filesystem>
#include <memory>
#include <string>

namespace SQLite {
class Database;
}

namespace ce::cache {

/// How long SQLite waits for a lock.
inline constexpr int busy_timeout_ms = 5000;

/// A URI for SQLite's OPEN_URI: of a file that no program writes, without locks and without SQLite's own files beside
/// it.
[[nodiscard]] std::string immutable_uri(const std::filesystem::path& path);

/// Opens a file for reading, with its log and with locks; creates and removes nothing.
/// \throws SQLite::Exception, also if that is not possible; immutable_uri() may still work
[[nodiscard]] std::unique_ptr<SQLite::Database> open_without_traces(const std::filesystem::path& path,
                                                                    int flags = 0);

}  // namespace ce::cache
