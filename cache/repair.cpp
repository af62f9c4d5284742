#include "cache/repair.hpp"

#include <SQLiteCpp/Exception.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cache/claim.hpp"
#include "cache/open.hpp"
#include "cache/schema.hpp"
#include "ce/base/error.hpp"
#include "ce/base/log.hpp"

namespace ce::cache {
namespace {

namespace fs = std::filesystem;

constexpr std::array logs{"-wal", "-journal", "-shm"};

bool is_there(const fs::path& path) { return fs::exists(fs::symlink_status(path)); }

/// A name that no file has, and none of a log: PATH.corrupt-20300131T120000Z, then PATH.corrupt-20300131T120000Z-2 and
/// so on.
fs::path name_aside(const fs::path& path) {
  std::string date;
  for (const char c : utc_now().substr(0, 19))
    if (c != '-' && c != ':') date += c;
  const std::string name = fmt::format("{}.corrupt-{}Z", path.string(), date);
  const auto is_taken = [](const std::string& file) {
    return is_there(file) ||
           std::any_of(logs.begin(), logs.end(), [&](const char* log) { return is_there(file + log); });
  };
  std::string free = name;
  for (int number = 2; is_taken(free); ++number) free = fmt::format("{}-{}", name, number);
  return free;
}

/// Where the new file is made. As long as it is there beside a file that is set aside, that repair goes on.
fs::path draft_of(const fs::path& aside) { return aside.string() + "-draft"; }

void remove_logs(const fs::path& path) {
  for (const char* log : logs) fs::remove(path.string() + log);
}

/// Of drafts of repairs of the file, and of SQLite's files beside them.
std::vector<fs::path> files_of_drafts(const fs::path& path) {
  const std::string beginning = path.filename().string() + ".corrupt-";
  std::vector<fs::path> found;
  std::error_code error;  // what cannot be listed has none that could be found
  for (fs::directory_iterator at(path.parent_path(), error), end; !error && at != end; at.increment(error))
    if (const std::string name = at->path().filename().string();
        name.starts_with(beginning) && name.find("-draft", beginning.size()) != std::string::npos)
      found.push_back(at->path());
  return found;
}

/// What a repair has set aside that has not ended; nothing where there is none.
std::optional<fs::path> unfinished(const fs::path& path) {
  for (const fs::path& file : files_of_drafts(path))
    if (const fs::path aside = fs::path(file).replace_filename(
            file.filename().string().substr(0, file.filename().string().rfind("-draft")));
        draft_of(aside) == file && is_there(aside))
      return aside;
  return std::nullopt;
}

void remove_drafts(const fs::path& path) {
  for (const fs::path& file : files_of_drafts(path)) fs::remove(file);
}

void move_logs(const fs::path& path, const fs::path& aside) {
  for (const char* log : logs) {
    if (is_there(aside.string() + log))
      continue;  // who opened the damaged file meanwhile has begun another one
    std::error_code error;
    fs::rename(path.string() + log, aside.string() + log, error);
    if (error && error != std::errc::no_such_file_or_directory)
      throw fs::filesystem_error("cannot set it aside", path.string() + log, error);
  }
}

void move_back(const fs::path& path, const fs::path& aside) {
  for (const char* log : logs)
    if (is_there(aside.string() + log)) fs::rename(aside.string() + log, path.string() + log);
  fs::rename(aside, path);
}

/// The file first. While there is none at the path nobody finds its logs there, and whoever found them before sees that
/// the file has moved. Where one of them cannot be moved all stay.
void move_aside(const fs::path& path, const fs::path& aside) {
  fs::rename(path, aside);
  try {
    move_logs(path, aside);
  } catch (...) {
    move_back(path, aside);
    throw;
  }
}

/// Empties a draft that is there already.
std::unique_ptr<Store> create_draft(const fs::path& draft) {
  remove_logs(draft);
  create_empty(draft);
  fs::resize_file(draft, 0);
  Opened opened = open_file(draft, IfEmpty::fill);
  if (!opened.problem.empty()) throw DatabaseError(opened.problem);
  return std::move(opened.store);
}

/// Nothing is at the path but logs that SQLite began for who had the damaged file open.
void put_in_place(std::unique_ptr<Store> store, const fs::path& draft, const fs::path& path) {
  store.reset();
  if (bytes_on_disk(draft) != static_cast<std::int64_t>(fs::file_size(draft)))
    throw DatabaseError(
        fmt::format("the log of {} could not be copied into it: free some space, or name a "
                    "file on another disk ({})",
                    draft.string(), ways_to_name_it));
  remove_logs(path);
  fs::rename(draft, path);
}

std::string counted(const Store::Counts& counts) {
  return fmt::format("{} measurements and {} compiled kernels could be read", counts.measurements,
                     counts.binaries);
}

/// SQLite leaves an index of the log, and an empty log where there was none.
void remove_leftovers_of_reading(const fs::path& aside) {
  ::unlink((aside.string() + "-shm").c_str());
  const std::string log = aside.string() + "-wal";
  std::error_code absent;
  if (fs::file_size(log, absent) == 0 && !absent) ::unlink(log.c_str());
}

std::string set_aside_as(const fs::path& path, const fs::path& aside, const std::string& cause,
                         const Store::Counts& counts) {
  return fmt::format(
      "{} was damaged ({}): it is set aside as {}, and a new one has taken its place; {} "
      "and are in it",
      path.string(), cause, aside.string(), counted(counts));
}

Repair into_memory(const fs::path& path, const std::string& cause, const std::string& obstacle) {
  Repair result{.memory = Store::in_memory(), .report = {}};
  salvage(is_there(path) ? path : unfinished(path).value_or(path), *result.memory);
  result.report = fmt::format(
      "{} is damaged ({}), and no new database can take its place ({}): {} and are kept in memory; "
      "name another file ({})",
      path.string(), cause, obstacle, counted(result.memory->counts()), ways_to_name_it);
  return result;
}

Repair into_new_file(const fs::path& path, const std::string& cause) {
  remove_drafts(path);
  const fs::path aside = name_aside(path), draft = draft_of(aside);
  Store::Counts counts;
  try {
    auto store = create_draft(draft);
    const Salvaged before = salvage(path, *store);
    move_aside(path, aside);
    try {
      // What others have committed since. Who does so from now on sees that the file has moved, and does it again.
      salvage(aside, *store, before);
      counts = store->counts();
      put_in_place(std::move(store), draft, path);
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

/// As into_new_file() where that was interrupted: anew, as nobody knows how far it had come.
void finish(const fs::path& path, const fs::path& aside) {
  move_logs(path, aside);
  const fs::path draft = draft_of(aside);
  auto store = create_draft(draft);
  salvage(aside, *store);
  const Store::Counts counts = store->counts();
  put_in_place(std::move(store), draft, path);
  remove_leftovers_of_reading(aside);
  log_once(LogLevel::warning,
           set_aside_as(path, aside, "and the process that repaired it was killed", counts));
}

/// Who has it may give the path to another file, by creating it or by setting a damaged one aside.
/// \throws Locked where another has it for too long; DatabaseError where there are no locks
Claim claim_of_place(const fs::path& path) {
  constexpr std::chrono::seconds most{10};
  const auto deadline = std::chrono::steady_clock::now() + most;
  for (;;) {
    if (auto claim = Claim::take(path.string() + "-place")) return std::move(*claim);
    if (std::chrono::steady_clock::now() > deadline)
      throw Locked(fmt::format("another process has been setting {} aside for more than {} s", path.string(),
                               most.count()));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

/// \throws Locked
std::optional<Claim> claim_where_there_are_locks(const fs::path& path) {
  try {
    return claim_of_place(path);
  } catch (const Locked&) {
    throw;
  } catch (const DatabaseError&) {
    return std::nullopt;  // then nothing can be set aside there either
  }
}

/// Only under the claim.
void finish_what_was_interrupted(const fs::path& path) {
  try {
    if (const auto aside = unfinished(path)) finish(path, *aside);
    remove_drafts(path);
  } catch (const fs::filesystem_error& error) {
    throw DatabaseError(fmt::format("cannot go on with the repair of {} ({}): name another file ({})",
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

/// A link to nothing is nothing.
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
  if (::stat(path.c_str(), &file) != 0) return {};
  return {.device = file.st_dev,
          .inode = file.st_ino,
          .bytes = file.st_size,
          .changed_at_ns = std::int64_t{file.st_mtim.tv_sec} * 1'000'000'000 + file.st_mtim.tv_nsec};
}

Repair repair(const fs::path& path, FileId damaged, const std::string& cause) {
  try {
    const Claim claim = claim_of_place(path);
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

void create_file(const fs::path& path) {
  create_folders(path.parent_path());
  struct stat there {};
  if (::stat(path.c_str(), &there) == 0) return;
  const auto claim = claim_where_there_are_locks(path);
  if (claim && is_missing(path)) finish_what_was_interrupted(path);
  create_empty(path);
}

fs::path existing_file(const fs::path& path) {
  std::error_code error;
  fs::path file = fs::absolute(path, error);
  if (error || !is_missing(file)) return file;
  if (unfinished(file)) static_cast<void>(claim_where_there_are_locks(file));
  if (!is_missing(file)) return file;
  if (unfinished(file))
    throw DatabaseError(fmt::format(
        "{} is being repaired, and the process that does so was killed or is another user's: the next "
        "program that tunes with it goes on with that",
        file.string()));
  throw NotFound(fmt::format("there is no tuning database {}", file.string()));
}

}  // namespace ce::cache
