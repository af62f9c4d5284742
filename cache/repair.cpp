#include "cache/repair.hpp"

#include <SQLiteCpp/Exception.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>
#include <system_error>

#include "cache/open.hpp"
#include "cache/schema.hpp"
#include "ce/base/error.hpp"

namespace ce::cache {
namespace {

namespace fs = std::filesystem;

/// A name that no file has: PATH.corrupt-20300131T120000Z, then PATH.corrupt-20300131T120000Z-2 and so on.
fs::path name_aside(const fs::path& path) {
  std::string date;
  for (const char c : utc_now().substr(0, 19))
    if (c != '-' && c != ':') date += c;
  const std::string name = fmt::format("{}.corrupt-{}Z", path.string(), date);
  fs::path free = name;
  for (int number = 2; fs::exists(fs::symlink_status(free)); ++number)
    free = fmt::format("{}-{}", name, number);
  return free;
}

/// The logs first: a file that is created at the path must not find them.
void move_aside(const fs::path& path, const fs::path& aside) {
  const std::string from = path.string(), to = aside.string();
  for (const char* log : {"-wal", "-journal"}) {
    std::error_code absent;
    fs::rename(from + log, to + log, absent);
  }
  const auto remove_files_of_sqlite = [&] {
    for (const char* suffix : {"-shm", "-wal", "-journal"}) ::unlink((from + suffix).c_str());
  };
  remove_files_of_sqlite();
  fs::rename(path, aside);
  remove_files_of_sqlite();  // of who opened the damaged file in between
}

std::string counted(const Salvaged& salvaged) {
  return fmt::format("{} measurements and {} compiled kernels could be read", salvaged.measurements,
                     salvaged.binaries);
}

/// SQLite leaves an index of the log, and an empty log where there was none.
void remove_leftovers_of_reading(const fs::path& aside) {
  ::unlink((aside.string() + "-shm").c_str());
  const std::string log = aside.string() + "-wal";
  std::error_code absent;
  if (fs::file_size(log, absent) == 0 && !absent) ::unlink(log.c_str());
}

Repair into_memory(const fs::path& damaged, const std::string& cause, const std::string& obstacle) {
  Repair result{.memory = Store::in_memory(), .report = {}};
  const Salvaged salvaged = salvage(damaged, *result.memory);
  result.report = fmt::format(
      "{} is damaged ({}), and no new database can take its place ({}): {} and are kept in memory; "
      "name another file ({})",
      damaged.string(), cause, obstacle, counted(salvaged), ways_to_name_it);
  return result;
}

Repair into_new_file(const fs::path& path, const fs::path& aside, const std::string& cause) {
  try {
    const Opened opened = open_file(path, IfEmpty::fill);
    const Salvaged salvaged = salvage(aside, *opened.store);
    remove_leftovers_of_reading(aside);
    return {.memory = nullptr,
            .report = fmt::format(
                "{} was damaged ({}): it is set aside as {}, and a new one has taken its place; {} "
                "and are in it",
                path.string(), cause, aside.string(), counted(salvaged))};
  } catch (const DatabaseError& error) {
    return into_memory(aside, cause, error.what());
  } catch (const SQLite::Exception& error) {
    return into_memory(aside, cause, explain(path, error));
  }
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
  fs::path aside;
  try {
    const Claim claim = claim_of_place(path);
    if (FileId::of(path) != damaged) return {};
    aside = name_aside(path);
    move_aside(path, aside);
    create_empty(path);
  } catch (const DatabaseError& error) {
    return into_memory(fs::exists(aside) ? aside : path, cause, error.what());
  } catch (const fs::filesystem_error& error) {
    return into_memory(path, cause, error.code().message());
  }
  return into_new_file(path, aside, cause);
}

}  // namespace ce::cache
