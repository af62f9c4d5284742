#include "cache/open.hpp"

#include <SQLiteCpp/Backup.h>
#include <SQLiteCpp/Column.h>
#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Exception.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/file_size_signal.hpp"
#include "base/log.hpp"
#include "cache/file_system.hpp"
#include "cache/ownership.hpp"
#include "cache/read_files.hpp"
#include "cache/recognize.hpp"
#include "cache/schema.hpp"
#include "ce/error.hpp"

namespace ce::cache {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds busy_timeout{busy_timeout_ms};

/// The owner of a Store locks it, so SQLite need not.
constexpr int one_user = SQLITE_OPEN_NOMUTEX;

/// Kilobytes of the page cache, at most: enough for the inner pages of the indexes of a database with millions of
/// measurements.
constexpr const char* keep_pages = "PRAGMA cache_size = -16384";

void require_regular_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_regular_file(status)) return;
  if (error && error.value() != ENOENT)
    throw DatabaseError(fmt::format("cannot open {} ({}): name another file ({})", path.string(),
                                    error.message(), ways_to_name_it));
  if (const std::string link = dangling_link(path); !link.empty())
    throw DatabaseError(fmt::format("{} is {}: create that file, or name another file ({})", path.string(),
                                    link, ways_to_name_it));
  throw DatabaseError(
      fmt::format("{} is not a regular file: name another file ({})", path.string(), ways_to_name_it));
}

/// Switching the mode does not wait for the connection's busy timeout, so this function does.
void use_write_ahead_log(SQLite::Database& database) {
  const auto deadline = steady_clock::now() + busy_timeout;
  for (;;) {
    try {
      database.exec("PRAGMA journal_mode = WAL");
      return;
    } catch (const SQLite::Exception& error) {
      if (code_of(error) != SQLITE_BUSY || steady_clock::now() > deadline) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

/// Ends a connection's exclusive mode. While that lasts, no memory is shared with other processes, even if the file had
/// a write-ahead log before.
void use_rollback_journal(SQLite::Database& database) {
  const std::string mode = database.execAndGet("PRAGMA journal_mode = DELETE").getString();
  if (mode != "delete") throw SQLite::Exception("its journal mode stays " + mode, SQLITE_BUSY);
  database.exec("PRAGMA locking_mode = NORMAL");
  database.exec("PRAGMA synchronous = FULL");
}

/// Called after each commit instead of SQLite's own checkpoints. Those copy the log into the file but restart it only
/// when no process happens to read it; with many processes, that is never. So the writer of a long log waits a moment
/// for its current readers; later readers read the file.
int keep_log_short(void*, sqlite3* connection, const char* name, int pages) {
  constexpr int usual_pages = 1000, most_pages = 4096;
  constexpr int wait_ms = 10;  // a reader that takes longer is not waited for
  if (pages < usual_pages) return SQLITE_OK;
  if (pages < most_pages) {
    sqlite3_wal_checkpoint_v2(connection, name, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
    return SQLITE_OK;
  }
  sqlite3_busy_timeout(connection, wait_ms);
  sqlite3_wal_checkpoint_v2(connection, name, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  sqlite3_busy_timeout(connection, static_cast<int>(busy_timeout.count()));
  return SQLITE_OK;  // if it failed, the next commit tries again
}

/// \param network  the kind of network file system; empty for none
void use_journal(SQLite::Database& database, const fs::path& path, std::string_view network) {
  if (network.empty()) {
    use_write_ahead_log(database);
    database.exec("PRAGMA synchronous = NORMAL");
    sqlite3_wal_hook(database.getHandle(), keep_log_short, nullptr);
    return;
  }
  use_rollback_journal(database);
  log_once(LogLevel::info, fmt::format("{} is on a network file system ({}): SQLite uses a rollback journal, "
                                       "and processes that write wait for each other",
                                       path.string(), network));
}

/// Sets whether the last connection that closes copies the log into the file, which changes the file.
void set_checkpoint_on_close(SQLite::Database& database, bool enabled) {
  sqlite3_db_config(database.getHandle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, enabled ? 0 : 1, nullptr);
}

NotFound nothing_in(const fs::path& path) {
  return NotFound(fmt::format("there is no tuning database in {}: the file {}", path.string(),
                              bytes_on_disk(path) == 0 ? "is empty" : "has no tables"));
}

/// Whether the path now leads to another file.
bool has_moved(SQLite::Database& database) {
  int moved = 0;
  sqlite3_file_control(database.getHandle(), "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  return moved != 0;
}

std::unique_ptr<Store> open_writable(const fs::path& path, IfEmpty if_empty) {
  if (const std::string foreign = foreign_log_of(path); !foreign.empty())
    throw SQLite::Exception(foreign, SQLITE_PERM);
  // The path behind links, so that no link can be inserted meanwhile.
  auto database = std::make_unique<SQLite::Database>(real_path(path).string(),
                                                     SQLite::OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW | one_user,
                                                     static_cast<int>(busy_timeout.count()));
  set_checkpoint_on_close(*database, false);
  const std::string_view network = network_file_system(path);
  if (!network.empty())
    database->exec("PRAGMA locking_mode = EXCLUSIVE");  // otherwise the index of a log would be shared memory
  // SQLite silently opens a file read-only if it may not write it.
  if (sqlite3_db_readonly(database->getHandle(), "main") != 0)
    throw SQLite::Exception("the file is read-only", SQLITE_READONLY);
  const bool has_tables = require_ours(*database, path);
  // SQLite knows that only after reading something.
  if (sqlite3_db_readonly(database->getHandle(), "main") != 0)
    throw SQLite::Exception("its header forbids writing to every current version of SQLite", SQLITE_CORRUPT);
  // The log, which is now open, is found by its name: it could belong to the new file at the path.
  if (has_moved(*database))
    throw SQLite::Exception("another file has replaced it in the meantime", SQLITE_BUSY);
  set_checkpoint_on_close(*database, true);
  if (!has_tables && if_empty == IfEmpty::refuse) throw nothing_in(path);
  use_journal(*database, path, network);
  database->exec("PRAGMA foreign_keys = ON");
  database->exec("PRAGMA trusted_schema = OFF");
  database->exec(keep_pages);
  create_tables(*database);
  return std::make_unique<Store>(std::move(database));
}

using Database = std::unique_ptr<SQLite::Database>;

/// A consistent copy of all that `source` has committed.
Database copy_to_memory(SQLite::Database& source, const fs::path& path, IfEmpty if_empty) {
  if (!require_ours(source, path) && if_empty == IfEmpty::refuse) throw nothing_in(path);
  auto memory = std::make_unique<SQLite::Database>(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  SQLite::Backup backup(*memory, source);
  const int result = backup.executeStep();
  if (result != SQLITE_DONE) throw SQLite::Exception("cannot copy the database", result);
  return memory;
}

/// Size and time of the last change in nanoseconds: every write changes them.
std::array<std::int64_t, 3> fingerprint(const fs::path& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return {};
  return {file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec};
}

/// Refuses a database with a log or journal that may not be opened: a log with content holds commits that a reader
/// would miss, and a journal the old contents of an unfinished commit. A file that the owner cannot have written is
/// ignored.
/// \param code  SQLite's code for why it cannot be opened
void require_no_log(const fs::path& path, int code) {
  if (!foreign_log_of(path).empty()) return;
  const std::string file = real_path(path).string();
  if (fingerprint(file + "-wal")[0] > 0)
    throw SQLite::Exception("its -wal file contains commits, but cannot be opened", code);
  if (fingerprint(file + "-journal")[0] > 0)
    throw SQLite::Exception("its -journal file contains an unfinished commit, but cannot be opened", code);
}

/// Whether SQLite may have lacked the right or the space to create its own files beside an intact database: the index
/// of a log needs 32 KiB. A failing disk gives the same codes, and fails again.
bool may_lack_its_own_files(int code) {
  return code == SQLITE_CANTOPEN || code == SQLITE_READONLY || code == SQLITE_PERM || code == SQLITE_FULL ||
         code == SQLITE_IOERR;
}

/// Whether this user may rebuild a log's missing index. Only the owner may, since the index then belongs to the user
/// who made it.
bool may_index_log(const fs::path& path) {
  struct stat file {};
  return ::stat(path.c_str(), &file) == 0 && (file.st_uid == ::geteuid() || ::geteuid() == 0) &&
         fingerprint(real_path(path).string() + "-wal")[0] > 0 && foreign_log_of(path).empty();
}

/// \param use  called with the open database; called again if another way of opening may work
template <class Use>
auto read_file(const fs::path& path, int flags, const Use& use) {
  try {
    return use(open_without_traces(path, flags));
  } catch (const SQLite::Exception& error) {
    if (code_of(error) != SQLITE_CANTOPEN || !may_index_log(path)) throw;
    auto database = std::make_unique<SQLite::Database>(path.string(), SQLite::OPEN_READONLY | flags,
                                                       static_cast<int>(busy_timeout.count()));
    set_checkpoint_on_close(*database, false);
    return use(std::move(database));
  }
}

/// Copies a file without locks, for folders in which SQLite cannot create its own files. Fails if the file changes
/// meanwhile.
/// \param code  SQLite's code for why it cannot
Database copy_unlocked(const fs::path& path, IfEmpty if_empty, int code) {
  require_no_log(path, code);
  const auto before = fingerprint(path);
  SQLite::Database source(immutable_uri(path), SQLite::OPEN_READONLY | SQLite::OPEN_URI);
  Database memory = copy_to_memory(source, path, if_empty);
  require_no_log(path, code);
  if (fingerprint(path) != before) throw SQLite::Exception("the file changed while it was read", SQLITE_BUSY);
  return memory;
}

/// Opens a copy in memory; the caller reports why.
Opened read_copy(const fs::path& path, IfEmpty if_empty) {
  Database memory;
  try {
    memory = read_file(path, 0, [&](Database source) { return copy_to_memory(*source, path, if_empty); });
  } catch (const SQLite::Exception& error) {
    if (!may_lack_its_own_files(code_of(error))) throw;
    memory = copy_unlocked(path, if_empty, code_of(error));
  }
  memory->exec("PRAGMA foreign_keys = ON");
  create_tables(*memory);
  return {.store = std::make_unique<Store>(std::move(memory)), .problem = {}};
}

std::unique_ptr<Store> reader(Database database, const fs::path& path) {
  if (!require_ours(*database, path)) throw nothing_in(path);
  database->exec("PRAGMA trusted_schema = OFF");
  database->exec(keep_pages);
  return std::make_unique<Store>(std::move(database));
}

std::string repair_advice(const fs::path& path, std::string_view cause) {
  return fmt::format(
      "{} is damaged or lacks some of its tables ({}): ce-tune db verify --repair, or the next program "
      "that tunes with it, sets it aside and copies all that can be read into a new database",
      path.string(), cause);
}

}  // namespace

Damaged::Damaged(const fs::path& path, std::string cause)
    : DatabaseError(repair_advice(path, cause)), cause_(std::move(cause)) {}

void create_empty(const fs::path& path) {
  if (const std::error_code error = create_database_file(path))
    throw DatabaseError(fmt::format("cannot create {} ({}): name a file that can be written ({})",
                                    path.string(), error.message(), ways_to_name_it));
}

std::int64_t bytes_on_disk(const fs::path& path) {
  std::int64_t total = 0;
  const std::string file = real_path(path).string();
  for (const char* suffix : {"", "-wal"}) {
    std::error_code error;
    const auto bytes = fs::file_size(file + suffix, error);
    if (!error) total += static_cast<std::int64_t>(bytes);
  }
  return total;
}

int code_of(const SQLite::Exception& error) noexcept { return error.getErrorCode() & 0xff; }

bool is_damage(const SQLite::Exception& error) noexcept {
  const int code = code_of(error);
  return code == SQLITE_NOTADB || code == SQLITE_CORRUPT || code == SQLITE_ERROR;
}

bool is_locked(const std::exception& error) noexcept {
  const auto* said = dynamic_cast<const SQLite::Exception*>(&error);
  if (said == nullptr) return dynamic_cast<const Locked*>(&error) != nullptr;
  return code_of(*said) == SQLITE_BUSY || code_of(*said) == SQLITE_LOCKED;
}

std::string explain(const fs::path& path, const SQLite::Exception& error) {
  if (is_damage(error) && resembles_ours(path)) return repair_advice(path, error.what());
  switch (code_of(error)) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      return fmt::format(
          "{} is damaged or not a tuning database ({}): move it away, or name another file ({})",
          path.string(), error.what(), ways_to_name_it);
    case SQLITE_ERROR:
      return fmt::format("{} lacks some of its tables ({}): move it away, or name another file ({})",
                         path.string(), error.what(), ways_to_name_it);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return fmt::format(
          "another process has locked {} for more than {} s ({}): end that process, or name another file "
          "({})",
          path.string(), busy_timeout.count() / 1000, error.what(), ways_to_name_it);
    case SQLITE_IOERR:
      return fmt::format(
          "cannot read or write {} ({}){}: its disk is full or failing; free some space, or name a file on "
          "another disk ({})",
          path.string(), error.what(), limit_on_files(), ways_to_name_it);
    case SQLITE_FULL:
      return fmt::format("no space is left for {} ({}): free some space, or name a file on another disk ({})",
                         path.string(), error.what(), ways_to_name_it);
    default:
      if (const std::string excess = excess_of_name(path, longest_of_sqlite); !excess.empty())
        return fmt::format("cannot open {}: {}: name another file ({})", path.string(), excess,
                           ways_to_name_it);
      return fmt::format(
          "cannot open {} ({}): check its permissions and those of its folder, or name "
          "another file ({})",
          path.string(), error.what(), ways_to_name_it);
  }
}

void rethrow(const fs::path& path, const SQLite::Exception& error) {
  if (is_damage(error) && resembles_ours(path)) throw Damaged(path, error.what());
  if (is_locked(error)) throw Locked(explain(path, error));
  throw DatabaseError(explain(path, error));
}

Opened open_file(const fs::path& path, IfEmpty if_empty) {
  require_regular_file(path);
  try {
    try {
      return {.store = open_writable(path, if_empty), .problem = {}};
    } catch (const SQLite::Exception& error) {
      if (!may_lack_its_own_files(code_of(error))) throw;
      Opened copy = read_copy(path, if_empty);
      if (const std::string excess = excess_of_name(path, longest_of_sqlite); !excess.empty()) {
        copy.problem =
            fmt::format("{} can be read but cannot be written: {}: rename it, or name another file ({})",
                        path.string(), excess, ways_to_name_it);
        return copy;
      }
      const bool lacks_space = code_of(error) == SQLITE_FULL || code_of(error) == SQLITE_IOERR;
      const char* remedy = lacks_space                     ? "free some space"
                           : code_of(error) == SQLITE_PERM ? "ask the owner of that file to remove it"
                                                           : "make it and its folder writable";
      copy.problem = fmt::format("{} can be read but cannot be written ({}){}: {}, or name another file ({})",
                                 path.string(), error.what(), lacks_space ? limit_on_files() : "", remedy,
                                 ways_to_name_it);
      return copy;
    }
  } catch (const SQLite::Exception& error) {
    rethrow(path, error);
  }
}

std::unique_ptr<Store> open_draft(const fs::path& path) {
  auto database = std::make_unique<SQLite::Database>(
      real_path(path).string(), SQLite::OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW | one_user);
  for (const char* setting :
       {"trusted_schema = OFF", "locking_mode = EXCLUSIVE", "journal_mode = OFF", "synchronous = OFF"})
    database->exec(fmt::format("PRAGMA {}", setting));
  create_tables(*database);
  return std::make_unique<Store>(std::move(database));
}

std::unique_ptr<Store> open_reader(const fs::path& path) {
  require_regular_file(path);
  try {
    try {
      return read_file(path, one_user, [&](Database database) { return reader(std::move(database), path); });
    } catch (const SQLite::Exception& error) {
      const int code = code_of(error);
      if (!may_lack_its_own_files(code)) throw;
      // If space becomes free, a writer may come while this is open: then only a copy is safe.
      if (code == SQLITE_FULL || code == SQLITE_IOERR) return read_copy(path, IfEmpty::refuse).store;
      require_no_log(path, code);
      return reader(std::make_unique<SQLite::Database>(immutable_uri(path),
                                                       SQLite::OPEN_READONLY | SQLite::OPEN_URI | one_user),
                    path);
    }
  } catch (const SQLite::Exception& error) {
    throw DatabaseError(explain(path, error));
  }
}

void forget_memory_counts() noexcept {
  sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);  // refused, and unnecessary, if a database is open
}

std::string obstacle_to_writing(const fs::path& path) {
  try {
    if (const std::string foreign = foreign_log_of(path); !foreign.empty())
      throw SQLite::Exception(foreign, SQLITE_PERM);
    SQLite::Database database(real_path(path).string(), SQLite::OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW,
                              static_cast<int>(busy_timeout.count()));
    database.exec("BEGIN IMMEDIATE");
    database.exec("ROLLBACK");
    return {};
  } catch (const SQLite::Exception& error) {
    return explain(path, error);
  }
}

std::unique_ptr<Store> copy_file(const fs::path& path) {
  require_regular_file(path);
  try {
    return read_copy(path, IfEmpty::refuse).store;
  } catch (const SQLite::Exception& error) {
    rethrow(path, error);
  }
}

}  // namespace ce::cache
