#pragma once
/// \file
/// The tables of the tuning database, and how a file gets from one version of them to the next.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace SQLite {
class Database;
}

namespace ce::cache {

/// How a user's file is named, for advice to name another one.
inline constexpr std::string_view ways_to_name_it = "CE_DB, --db or ContextOptions::database";

/// Stands in the header of every file of ours: "ceDB".
inline constexpr std::int32_t application_id = 0x63654442;

/// And in front of every database of SQLite, the zero included.
inline constexpr std::string_view magic("SQLite format 3\0", 16);

/// SQL texts; the one at index v takes a database from version v (PRAGMA user_version) to v + 1.
/// Released texts never change: a new version is a new text at the end.
[[nodiscard]] std::span<const char* const> migrations() noexcept;

/// Returns for an empty database and for one of ours that this version can read. Changes nothing.
/// \returns whether it has tables: an empty one has none
/// \throws DatabaseError for the database of another program or of a newer ce; it names `path`
/// \throws SQLite::Exception where it cannot be read at all, or has our tables under another application_id
[[nodiscard]] bool require_ours(SQLite::Database& database, const std::filesystem::path& path);

/// The first bytes of a file, at most so many. Through SQLite: closing any other descriptor of a file drops the locks
/// that SQLite holds on it for this process.
/// \throws SQLite::Exception where the file cannot be opened or read
[[nodiscard]] std::string beginning_of(const std::filesystem::path& path, std::size_t most);

/// Whether a file that SQLite cannot read was one of ours: by its application_id, the texts of its tables, which a young
/// one has in its log alone, or because it is the beginning of a database too short to tell. Changes nothing, and takes no lock away that
/// this process has on the file.
[[nodiscard]] bool resembles_ours(const std::filesystem::path& path) noexcept;

/// Whether the file begins as databases of SQLite do, or resembles one of ours.
[[nodiscard]] bool is_database(const std::filesystem::path& path) noexcept;

/// Gives the connection the SQL functions ce_identity(), identity_of() of the values of a measurement: problem, device,
/// config, template_digest, compile_key, outcome, reason, stage, rows, bytes, samples_us, median_us, spread, registers,
/// local_bytes, environment, created_at; and ce_digest(), digest() of one text or blob, or of two.
/// \throws SQLite::Exception
void add_functions(SQLite::Database& database);

/// Applies the texts that the database lacks, each in a transaction of its own that either happens whole or
/// not at all, also when several processes do this at once.
/// \throws SQLite::Exception
void migrate(SQLite::Database& database, std::span<const char* const> steps);

}  // namespace ce::cache
