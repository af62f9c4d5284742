#include "cache/recognize.hpp"

#include <SQLiteCpp/Column.h>
#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Exception.h>
#include <SQLiteCpp/Transaction.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <exception>
#include <fstream>

#include "cache/file_system.hpp"
#include "cache/read_files.hpp"
#include "cache/schema.hpp"
#include "ce/error.hpp"

namespace ce::cache {
namespace {

/// Whether the database's table has the schema number of its header.
bool is_of_version(SQLite::Database& database, int version) {
  return database.tableExists("schema_versions") &&
         database.execAndGet("SELECT MAX(version) FROM schema_versions").getInt() == version;
}

DatabaseError of_another_version(const std::filesystem::path& path, int version) {
  const bool is_newer = version > schema_version;
  return DatabaseError(
      fmt::format("{} was written by {} version of ce (schema {}, but this version has schema {}): {}, or "
                  "name another file ({})",
                  path.string(), is_newer ? "a newer" : "an older", version, schema_version,
                  is_newer ? "upgrade ce" : "use that version of ce", ways_to_name_it));
}

constexpr std::size_t id_at = 68, shortest_header = id_at + 4;

/// The tables are created in one commit: their SQL lies within the first bytes of the file, or of its log before that.
constexpr std::size_t bytes_of_tables = 1 << 17;

/// \param header_at  where a header would begin
bool is_of_ours(std::string_view bytes, std::size_t header_at) {
  return (bytes.size() > header_at + id_at && bytes.substr(header_at + id_at).starts_with("ceDB")) ||
         bytes.find("CREATE TABLE device_models") != std::string_view::npos;
}

bool has_tables_of_ours(SQLite::Database& database) {
  return database.tableExists("device_models") && database.tableExists("measurements");
}

/// Whether a file that SQLite can read has tables of ce.
bool has_tables_of_ours(const std::filesystem::path& path) {
  try {
    return has_tables_of_ours(*open_without_traces(path));
  } catch (const SQLite::Exception&) {
    return false;
  }
}

/// Whether the log of a database has tables of ce that are not in its file yet. Its log begins with the commit that
/// created them, page 1 first.
bool log_is_of_ours(const std::filesystem::path& database) {
  constexpr std::size_t header_at = 32 + 24;
  // SQLite has no locks on a log that closing it could drop.
  std::ifstream log(real_path(database).string() + "-wal", std::ios::binary);
  std::string bytes(bytes_of_tables, '\0');
  log.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(log.gcount()));
  return is_of_ours(bytes, header_at);
}

}  // namespace

std::string beginning_of(const std::filesystem::path& path, std::size_t most) {
  const SQLite::Database database(path.string(), SQLite::OPEN_READONLY);
  sqlite3_file* file = nullptr;
  sqlite3_file_control(database.getHandle(), "main", SQLITE_FCNTL_FILE_POINTER, static_cast<void*>(&file));
  sqlite3_int64 size = 0;
  const auto expect = [](int result) {
    if (result != SQLITE_OK) throw SQLite::Exception("cannot read the beginning of a file", result);
  };
  expect(file == nullptr || file->pMethods == nullptr ? SQLITE_CANTOPEN : SQLITE_OK);
  expect(file->pMethods->xFileSize(file, &size));
  std::string bytes(std::min(most, static_cast<std::size_t>(size)), '\0');
  expect(file->pMethods->xRead(file, bytes.data(), static_cast<int>(bytes.size()), 0));
  return bytes;
}

bool require_ours(SQLite::Database& database, const std::filesystem::path& path) {
  // One read transaction: otherwise a file that another process is just creating would look foreign.
  const SQLite::Transaction snapshot(database);
  const int id = database.execAndGet("PRAGMA application_id").getInt();
  const int version = schema_of(database);
  if (id == application_id && version == schema_version) return true;
  if (version == 0 && (id == 0 || id == application_id) &&
      database.execAndGet("SELECT COUNT(*) FROM sqlite_master").getInt() == 0)
    return false;
  if (id == application_id) {
    if (!is_of_version(database, version))
      throw SQLite::Exception(fmt::format("its header names schema {}, its tables another one", version),
                              SQLITE_CORRUPT);
    throw of_another_version(path, version);
  }
  if (has_tables_of_ours(database)) throw SQLite::Exception("its application_id is another", SQLITE_CORRUPT);
  throw DatabaseError(fmt::format("{} is a database of another program: name another file ({})",
                                  path.string(), ways_to_name_it));
}

bool resembles_ours(const std::filesystem::path& path) noexcept {
  try {
    const std::string bytes = beginning_of(path, bytes_of_tables);
    if (bytes.size() < shortest_header)
      return magic.starts_with(std::string_view(bytes).substr(0, magic.size()));
    return is_of_ours(bytes, 0) || log_is_of_ours(path) || has_tables_of_ours(path);
  } catch (const std::exception&) {
    return false;
  }
}

bool is_database(const std::filesystem::path& path) noexcept {
  try {
    const std::string bytes = beginning_of(path, magic.size());
    return bytes == magic || (!bytes.empty() && resembles_ours(path));
  } catch (const std::exception&) {
    return false;
  }
}

bool belongs_to_database(const std::filesystem::path& path) noexcept {
  try {
    const std::string file = real_path(path).string();
    return std::any_of(files_of_sqlite.begin(), files_of_sqlite.end(), [&](std::string_view suffix) {
      return file.ends_with(suffix) && is_database(file.substr(0, file.size() - suffix.size()));
    });
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace ce::cache
