#pragma once
/// \file
/// Whether a file is a tuning database, and one of this version of ce.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace SQLite {
class Database;
}

namespace ce::cache {

/// How users name a file, for the advice in messages.
inline constexpr std::string_view ways_to_name_it = "CE_DB, --db or ContextOptions::database";

/// The application_id in the header of every tuning database: "ceDB".
inline constexpr std::int32_t application_id = 0x63654442;

/// The first bytes of every SQLite database, including the final zero.
inline constexpr std::string_view magic("SQLite format 3\0", 16);

/// Returns for an empty database and for one of ours with this version's schema. Changes nothing.
/// \returns whether it has tables: an empty one has none
/// \throws DatabaseError for the database of another program, or of a ce with another schema; it names `path`
/// \throws SQLite::Exception if it cannot be read at all, has our tables under another application_id, or has different
/// schema numbers in its header and its tables
[[nodiscard]] bool require_ours(SQLite::Database& database, const std::filesystem::path& path);

/// The first bytes of a file. Read through SQLite: closing any other descriptor of a file drops the locks that SQLite
/// holds on it for this process.
/// \throws SQLite::Exception if the file cannot be opened or read
[[nodiscard]] std::string beginning_of(const std::filesystem::path& path, std::size_t most);

/// Whether a file that SQLite cannot read was one of ours: by its application_id, by the SQL of its tables, which a
/// young database only has in its log, or because it is too short a beginning of a database to tell. Changes nothing,
/// and drops no lock that this process has on the file.
[[nodiscard]] bool resembles_ours(const std::filesystem::path& path) noexcept;

/// Whether the file begins like an SQLite database, or resembles one of ours.
[[nodiscard]] bool is_database(const std::filesystem::path& path) noexcept;

/// Whether the path is that of a file that SQLite has beside a database, such as NAME-wal, even if there is no such file
/// now. Links are followed.
[[nodiscard]] bool belongs_to_database(const std::filesystem::path& path) noexcept;

}  // namespace ce::cache
