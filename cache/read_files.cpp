#include "cache/read_files.hpp"

#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Exception.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include <string_view>

#include "cache/ownership.hpp"

namespace ce::cache {
namespace {

namespace fs = std::filesystem;

constexpr const char* name_of_vfs = "ce-reader";

sqlite3_vfs* default_vfs() {
  static sqlite3_vfs* const found = sqlite3_vfs_find(nullptr);
  return found;
}

int open_what_is_there(sqlite3_vfs*, const char* path, sqlite3_file* file, int flags, int* flags_out) {
  constexpr int of_the_database = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL;
  if ((flags & of_the_database) != 0) flags &= ~SQLITE_OPEN_CREATE;
  return default_vfs()->xOpen(default_vfs(), path, file, flags, flags_out);
}

int remove_nothing(sqlite3_vfs*, const char*, int) { return SQLITE_OK; }

int register_vfs() {
  if (default_vfs() == nullptr) return SQLITE_ERROR;
  static sqlite3_vfs vfs = *default_vfs();
  vfs.pNext = nullptr;
  vfs.zName = name_of_vfs;
  vfs.xOpen = open_what_is_there;
  vfs.xDelete = remove_nothing;
  return sqlite3_vfs_register(&vfs, 0);
}

/// The name of a SQLite VFS that behaves like the default one, but creates and removes no files. (The index of a log is
/// opened in another way.)
const char* vfs_of_readers() {
  static const int result = register_vfs();
  if (result != SQLITE_OK) throw SQLite::Exception("cannot register a VFS", result);
  return name_of_vfs;
}

/// \param parameter  a URI parameter of SQLite, with its value
std::string uri(const fs::path& path, std::string_view parameter) {
  // The two slashes introduce an empty host name: otherwise a path that begins with two slashes would be read as a
  // host.
  std::string text = path.is_absolute() ? "file://" : "file:";
  for (const char c : path.string()) {
    if (c == '%' || c == '?' || c == '#')
      text += fmt::format("%{:02x}", static_cast<unsigned>(c));
    else
      text += c;
  }
  return text.append("?").append(parameter);
}

}  // namespace

std::string immutable_uri(const fs::path& path) { return uri(path, "immutable=1"); }

std::unique_ptr<SQLite::Database> open_without_traces(const fs::path& path, int flags) {
  if (const std::string foreign = foreign_log_of(path); !foreign.empty())
    throw SQLite::Exception(foreign, SQLITE_PERM);
  auto database = std::make_unique<SQLite::Database>(uri(path, "readonly_shm=1"),
                                                     SQLite::OPEN_READONLY | SQLite::OPEN_URI | flags,
                                                     busy_timeout_ms, vfs_of_readers());
  // A checkpoint would change the file.
  sqlite3_db_config(database->getHandle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  return database;
}

}  // namespace ce::cache
