#include "cache/repair/repair.hpp"

#include <SQLiteCpp/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/own_descriptor.hpp"
#include "base/time.hpp"
#include "cache/file_lock.hpp"
#include "cache/file_system.hpp"
#include "cache/open.hpp"
#include "cache/recognize.hpp"
#include "ce/error.hpp"

namespace ce::cache {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) { return fs::exists(fs::symlink_status(path)); }

/// The path at which the new file is made. While it exists beside a file that was set aside, that repair is unfinished.
fs::path draft_of(const fs::path& aside) { return aside.string() + "-draft"; }

/// A free name, also for its draft and logs: PATH.corrupt-20300131T120000Z, then PATH.corrupt-20300131T120000Z-2 and so
/// on.
fs::path name_aside(const fs::path& path) {
  std::string date;
  for (const char c : utc_now().substr(0, 19))
    if (c != '-' && c != ':') date += c;
  const std::string name = fmt::format("{}.corrupt-{}Z", path.string(), date);
  const auto is_taken = [](const std::string& file) {
    const auto has = [](const std::string& one) {
      return is_there(one) || std::any_of(files_of_sqlite.begin(), files_of_sqlite.end(),
                                          [&](const char* log) { return is_there(one + log); });
    };
    return has(file) || has(draft_of(file).string());
  };
  std::string free = name;
  for (int number = 2; is_taken(free); ++number) free = fmt::format("{}-{}", name, number);
  return free;
}

void remove_logs(const fs::path& path) {
  for (const char* log : files_of_sqlite) fs::remove(path.string() + log);
}

/// Finds the suffix of name_aside() in a name, from `at` on. \returns where it ends, or npos
std::size_t end_of_date(const std::string& name, std::size_t at) {
  constexpr std::string_view pattern = "00000000T000000Z", digits = "0123456789";
  for (const char wanted : pattern) {
    if (at >= name.size()) return std::string::npos;
    const char c = name[at++];
    if (wanted == '0' ? digits.find(c) == std::string_view::npos : c != wanted) return std::string::npos;
  }
  if (at + 1 >= name.size() || name[at] != '-' || digits.find(name[at + 1]) == std::string_view::npos)
    return at;
  const std::size_t end = name.find_first_not_of(digits, at + 1);
  return end == std::string::npos ? name.size() : end;
}

struct DraftFile {
  fs::path path, aside;
  bool is_log = false;  ///< SQLite's log of the draft
};

/// All files with the names of drafts of repairs of the file, whoever owns them.
std::vector<DraftFile> files_of_drafts(const fs::path& path) {
  const std::string beginning = path.filename().string() + ".corrupt-";
  std::vector<DraftFile> found;
  std::error_code error;  // a folder that cannot be listed counts as empty
  for (fs::directory_iterator at(path.parent_path(), error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(beginning)) continue;
    const std::size_t date_end = end_of_date(name, beginning.size());
    if (date_end == std::string::npos) continue;
    const fs::path aside = path.parent_path() / name.substr(0, date_end), draft = draft_of(aside);
    if (at->path() == draft) found.push_back({.path = draft, .aside = aside});
    for (const char* log : files_of_sqlite)
      if (at->path() == draft.string() + log)
        found.push_back({.path = at->path(), .aside = aside, .is_log = true});
  }
  return found;
}

/// The file that an unfinished repair has set aside; nothing if there is none.
/// \param own  whether the draft must belong to this user; else to another user
std::optional<fs::path> unfinished(const fs::path& path, bool own) {
  for (const DraftFile& file : files_of_drafts(path))
    if (!file.is_log && fs::is_regular_file(fs::symlink_status(file.aside)) && is_own_file(file.path) == own)
      return file.aside;
  return std::nullopt;
}

/// Removes drafts that this user has made.
void remove_drafts(const fs::path& path) {
  for (const DraftFile& file : files_of_drafts(path))
    if (is_own_file(file.path)) fs::remove(file.path);
}

void move_logs(const fs::path& path, const fs::path& aside) {
  for (const char* log : files_of_sqlite) {
    if (is_there(aside.string() + log))
      continue;  // a program that had the damaged file open meanwhile has created a new log
    std::error_code error;
    fs::rename(path.string() + log, aside.string() + log, error);
    if (error && error != std::errc::no_such_file_or_directory)
      throw fs::filesystem_error("cannot set it aside", path.string() + log, error);
  }
}

void move_back(const fs::path& path, const fs::path& aside) {
  for (const char* log : files_of_sqlite)
    if (is_there(aside.string() + log)) fs::rename(aside.string() + log, path.string() + log);
  fs::rename(aside, path);
}

/// The file is moved first. While there is none at the path, no program finds its logs there; a program that found them
/// before sees that the file has moved. If one of them cannot be moved, all stay.
void move_aside(const fs::path& path, const fs::path& aside) {
  fs::rename(path, aside);
  try {
    move_logs(path, aside);
  } catch (...) {
    move_back(path, aside);
    throw;
  }
}

/// Creates a new draft, or empties this user's old one; never follows a link.
std::unique_ptr<Store> create_draft(const fs::path& draft) {
  remove_logs(draft);
  {  // closed before SQLite has locks on it
    const OwnDescriptor descriptor([&] {
      const int there = ::open(draft.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
      if (there >= 0 || errno != ENOENT) return there;
      return ::open(draft.c_str(), O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
    });
    if (descriptor.get() < 0 || !is_own_file(draft) || ::ftruncate(descriptor.get(), 0) != 0)
      throw DatabaseError(fmt::format("cannot create or empty {}: name a file in another folder ({})",
                                      draft.string(), ways_to_name_it));
  }
  Opened opened = open_file(draft, IfEmpty::fill);
  if (!opened.problem.empty()) throw DatabaseError(opened.problem);
  return std::move(opened.store);
}

/// Removes logs at the path, where there is no file: SQLite created them for programs that had the damaged file open.
void put_in_place(std::unique_ptr<Store> store, const fs::path& aside, const fs::path& path) {
  const fs::path draft = draft_of(aside);
  store.reset();
  if (bytes_on_disk(draft) != static_cast<std::int64_t>(fs::file_size(draft)))
    throw DatabaseError(
        fmt::format("the log of {} could not be copied into it: free some space, or name a "
                    "file on another disk ({})",
                    draft.string(), ways_to_name_it));
  {
    const OwnDescriptor descriptor([&] { return ::open(draft.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC); });
    if (descriptor.get() >= 0) share_as(aside, descriptor.get());
  }
  remove_logs(path);
  fs::rename(draft, path);
}

std::string counted(const Store::Counts& counts) {
  return fmt::format("{} measurements and {} compiled kernels could be read", counts.measurements,
                     counts.binaries);
}

/// SQLite leaves an index of the log, and an empty log if there was none.
void remove_leftovers_of_reading(const fs::path& aside) {
  ::unlink((aside.string() + "-shm").c_str());
  const std::string log = aside.string() + "-wal";
  std::error_code absent;
  if (fs::file_size(log, absent) == 0 && !absent) ::unlink(log.c_str());
}

std::string set_aside_as(const fs::path& path, const fs::path& aside, const std::string& cause,
                         const Store::Counts& counts) {
  return fmt::format(
      "{} was damaged ({}): the file is set aside as {}, and ce has created a new database; {}, and are in "
      "the new database",
      path.string(), cause, aside.string(), counted(counts));
}

Repair into_memory(const fs::path& path, const std::string& cause, const std::string& obstacle) {
  Repair result{.memory = Store::in_memory(), .report = {}};
  salvage(is_there(path) ? path : unfinished(path, true).value_or(path), *result.memory);
  result.report = fmt::format(
      "{} is damaged ({}), and ce cannot replace it with a new database ({}): {}, and are only in memory; "
      "name another file ({})",
      path.string(), cause, obstacle, counted(result.memory->counts()), ways_to_name_it);
  return result;
}

Repair into_new_file(const fs::path& path, const std::string& cause) {
  remove_drafts(path);
  const fs::path aside = name_aside(path);
  Store::Counts counts;
  try {
    auto store = create_draft(draft_of(aside));
    const Salvaged before = salvage(path, *store);
    move_aside(path, aside);
    try {
      // Copies what others have committed since. Whoever commits from now on sees that the file has moved, and commits
      // again.
      salvage(aside, *store, before);
      counts = store->counts();
      put_in_place(std::move(store), aside, path);
    } catch (...) {
      move_back(path, aside);
      throw;
    }
  } catch (...) {
    if (!is_there(aside)) remove_drafts(path);
    throw;
  }
  remove_leftovers_of_reading(aside);
  return {.memory = nullptr, .report = set_aside_as(path, aside, cause, counts)};
}

/// Redoes an interrupted into_new_file() from the start, since its progress is unknown.
void finish(const fs::path& path, const fs::path& aside) {
  move_logs(path, aside);
  auto store = create_draft(draft_of(aside));
  salvage(aside, *store);
  const Store::Counts counts = store->counts();
  put_in_place(std::move(store), aside, path);
  remove_leftovers_of_reading(aside);
  log_once(LogLevel::warning,
           set_aside_as(path, aside, "and the process that repaired it was killed", counts));
}

/// Takes the lock with which a process may replace the file at the path, by creating it or by setting a damaged one
/// aside.
/// \throws Locked if another process holds it for too long; DatabaseError if the file system has no locks
FileLock repair_lock_of(const fs::path& path) {
  constexpr std::chrono::seconds most{10};
  const auto deadline = std::chrono::steady_clock::now() + most;
  for (;;) {
    if (auto lock = FileLock::take(path.string() + "-repair-lock", path)) return std::move(*lock);
    if (std::chrono::steady_clock::now() > deadline)
      throw Locked(fmt::format("another process has been setting {} aside for more than {} s", path.string(),
                               most.count()));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

/// Like repair_lock_of(); nothing if the file system has no locks. \throws Locked
std::optional<FileLock> repair_lock_where_there_are_locks(const fs::path& path) {
  try {
    return repair_lock_of(path);
  } catch (const Locked&) {
    throw;
  } catch (const DatabaseError&) {
    return std::nullopt;  // without locks, no file can be set aside there either
  }
}

/// Must only be called by the holder of the repair lock.
void finish_what_was_interrupted(const fs::path& path) {
  try {
    if (const auto aside = unfinished(path, true)) finish(path, *aside);
    remove_drafts(path);
  } catch (const fs::filesystem_error& error) {
    throw DatabaseError(fmt::format("cannot continue the repair of {} ({}): name another file ({})",
                                    path.string(), error.what(), ways_to_name_it));
  } catch (const SQLite::Exception& error) {
    rethrow(path, error);
  }
}

void create_folders(const fs::path& folder) {
  std::error_code ignored;
  if (folder.empty() || fs::is_directory(folder, ignored)) return;
  create_folders(folder.parent_path());
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw DatabaseError(
        fmt::format("cannot create the folder {} ({}): name a file in a folder that can be written ({})",
                    folder.string(), std::generic_category().message(errno), ways_to_name_it));
}

DatabaseError being_repaired(const fs::path& path) {
  return DatabaseError(fmt::format(
      "the repair of {} is unfinished: the process that began it was killed, or belongs to another user. The "
      "next program of that user that tunes with this database continues the repair",
      path.string()));
}

/// Whether there is no file at the path. A dangling link counts as none.
bool is_missing(const fs::path& path) {
  std::error_code unknown;
  return fs::status(path, unknown).type() == fs::file_type::not_found;
}

}  // namespace

FileId FileId::of(const fs::path& path) noexcept {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return {};
  return {.device = file.st_dev, .inode = file.st_ino};
}

FileId FileId::with_change(const fs::path& path) noexcept {
  struct stat file {};
  struct stat log {};
  if (::stat(path.c_str(), &file) != 0) return {};
  return {.device = file.st_dev,
          .inode = file.st_ino,
          .bytes = file.st_size,
          .changed_at_ns = std::int64_t{file.st_mtim.tv_sec} * 1'000'000'000 + file.st_mtim.tv_nsec,
          .has_log = ::stat((real_path(path).string() + "-wal").c_str(), &log) == 0 && log.st_size > 0};
}

Repair repair(const fs::path& named, FileId damaged, const std::string& cause) {
  const fs::path path = real_path(named);
  try {
    const FileLock lock = repair_lock_of(path);
    if (FileId::of(path) != damaged) return {};
    return into_new_file(path, cause);
  } catch (const DatabaseError& error) {
    return into_memory(path, cause, error.what());
  } catch (const fs::filesystem_error& error) {
    return into_memory(path, cause, error.code().message());
  } catch (const SQLite::Exception& error) {
    return into_memory(path, cause, explain(path, error));
  }
}

void create_file(const fs::path& named) {
  struct stat there {};
  if (::stat(named.c_str(), &there) == 0) return;
  if (const std::string excess = excess_of_name(named, longest_of_all); !excess.empty())
    throw DatabaseError(
        fmt::format("cannot create {}: {}: name another file ({})", named.string(), excess, ways_to_name_it));
  create_folders(named.parent_path());
  const fs::path path = real_path(named);
  const auto lock = repair_lock_where_there_are_locks(path);
  if (lock && is_missing(path)) finish_what_was_interrupted(path);
  if (is_missing(path) && unfinished(path, false)) throw being_repaired(path);
  create_empty(named);
}

fs::path existing_file(const fs::path& path) {
  std::error_code error;
  fs::path file = fs::absolute(path, error);
  if (error || !is_missing(file)) return file;
  const fs::path real = real_path(file);
  const auto is_repaired = [&] { return unfinished(real, true) || unfinished(real, false); };
  if (is_repaired()) static_cast<void>(repair_lock_where_there_are_locks(real));
  if (!is_missing(file)) return file;
  if (is_repaired()) throw being_repaired(file);
  throw NotFound(fmt::format("there is no tuning database {}", file.string()));
}

}  // namespace ce::cache
