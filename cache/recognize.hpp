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

/// How a user's file is named, for advice to name another one.
inline constexpr std::string_view ways_to_name_it = "CE_DB, --db or ContextOptions::database";

/// Stands in the header of every tuning database: "ceDB".
inline constexpr std::int32_t application_id = 0x63654442;

/// The first bytes of every database of SQLite, the zero included.
inline constexpr std::string_view magic("SQLite format 3\0", 16);

/// Returns for an empty database and for one of ours with the schema of this version. Changes nothing.
/// \returns whether it has tables: an empty one has none
/// \throws DatabaseError for the database of another program, or of a ce with another schema; it names `path`
/// \throws SQLite::Exception where it cannot be read at all, has our tables under another application_id, or names
/// one schema in its header and another in its tables
[[nodiscard]] bool require_ours(SQLite::Database& database, const std::filesystem::path& path);

/// The first bytes of a file, at most so many. Through SQLite: closing any other descriptor of a file drops the locks
/// that SQLite holds on it for this process.
/// \throws SQLite::Exception where the file cannot be opened or read
[[nodiscard]] std::string beginning_of(const std::filesystem::path& path, std::size_t most);

/// Whether a file that SQLite cannot read was one of ours: by its application_id, the texts of its tables, which a young
/// one has in its log alone, or because it is the beginning of a database too short to tell. Changes nothing, and takes
/// no lock away that this process has on the file.
[[nodiscard]] bool resembles_ours(const std::filesystem::path& path) noexcept;

/// Whether the file begins as databases of SQLite do, or resembles one of ours.
[[nodiscard]] bool is_database(const std::filesystem::path& path) noexcept;

}  // namespace ce::cache
