#include "cache/cache_impl.hpp"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/own_descriptor.hpp"
#include "cache/file_system.hpp"
#include "cache/ownership.hpp"
#include "cache/possible.hpp"
#include "cache/repair/repair.hpp"
#include "ce/error.hpp"

namespace ce::cache {
namespace {

namespace fs = std::filesystem;

/// Examining a larger file takes longer than a tuning should wait; ce-tune db verify examines it.
constexpr std::int64_t most_bytes_to_examine = std::int64_t{1} << 30;

/// A larger file than this is examined by one of the writing processes; the others skip that for a while. Many
/// processes that start together would keep the machine busy.
constexpr std::chrono::hours examination_lasts{1};

fs::path mark_of(const fs::path& database) { return real_path(database).string() + "-examined"; }

bool was_examined(const fs::path& database) {
  struct stat mark {};
  if (::lstat(mark_of(database).c_str(), &mark) != 0 || !S_ISREG(mark.st_mode)) return false;
  struct stat file {};
  const bool known = mark.st_uid == ::geteuid() || mark.st_uid == 0 ||
                     (::stat(database.c_str(), &file) == 0 && mark.st_uid == file.st_uid);
  const auto at = std::chrono::system_clock::from_time_t(mark.st_mtime);
  return known && std::chrono::system_clock::now() - at < examination_lasts;
}

/// If it cannot be written, the next process examines the database, too.
void mark_examined(const fs::path& database) {
  const fs::path mark = mark_of(database);
  static_cast<void>(create_beside(real_path(database), mark));
  const OwnDescriptor descriptor(
      [&] { return ::open(mark.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK); });
  if (descriptor.get() >= 0) static_cast<void>(::futimens(descriptor.get(), nullptr));
}

}  // namespace

std::string Cache::Impl::unreadable(const std::exception& error) const {
  return fmt::format("cannot read the tuning database {} ({}): ce continues without its content",
                     path.string(), error.what());
}

void Cache::Impl::end_refusal() {
  refused.reset();
  log(LogLevel::info,
      fmt::format("{} can be written again, and now contains the measurements that were only in memory",
                  path.string()));
}

void Cache::Impl::deliver() {
  on_store(Use::write, [&](Store& target) { target.merge(std::array{refused.get()}, true, Triggers::on); });
  end_refusal();
}

std::vector<KeyRows> Cache::Impl::whole_rows(const Key& key, Reader reader) {
  std::vector<KeyRows> parts;
  read([&](Store& source) {
    KeyRows rows = (source.*reader)(key);
    rows.expect_whole();
    parts.push_back(std::move(rows));
  });
  return parts;
}

std::vector<Measurement> Cache::Impl::measurements(const Key& key, Reader reader) {
  std::vector<KeyRows> parts;
  {
    const std::lock_guard lock(mutex);
    read([&](Store& source) { parts.push_back((source.*reader)(key)); });
  }
  try {
    for (KeyRows& rows : parts) rows.expect_whole();
  } catch (const SQLite::Exception&) {
    const std::lock_guard lock(mutex);
    parts = whole_rows(key, reader);
  }
  return measurements_in(std::move(parts));
}

std::vector<Measurement> Cache::Impl::measurements_in(std::vector<KeyRows> parts) const {
  std::vector<Measurement> all;
  for (KeyRows& rows : parts) {
    // The file belongs to another user, who may have written anything.
    if (read_only) rows.keep_possible();
    rows.sort();
    auto list = rows.measurements();
    if (all.empty())
      all = std::move(list);
    else
      std::move(list.begin(), list.end(), std::back_inserter(all));
  }
  const auto older = [](const auto& a, const auto& b) { return a.created_at < b.created_at; };
  if (!std::is_sorted(all.begin(), all.end(), older)) std::stable_sort(all.begin(), all.end(), older);
  return all;
}

std::vector<Key> Cache::Impl::find(const std::string& prefix) {
  std::vector<Key> all;
  read([&](Store& source) {
    const auto others = static_cast<std::ptrdiff_t>(all.size());
    for (Key& key : source.find(prefix))
      if (std::find(all.begin(), all.begin() + others, key) == all.begin() + others)
        all.push_back(std::move(key));
  });
  return all;
}

std::string Cache::Impl::other_writer() const {
  if (path.empty() || !other_writer_at_opening.empty()) return other_writer_at_opening;
  return other_writer_of(path);
}

std::optional<std::vector<std::byte>> Cache::Impl::binary(const std::string& compile_key) {
  std::optional<std::vector<std::byte>> found;
  if (own_code != nullptr && (found = own_code->binary(compile_key))) return found;
  read([&](Store& source) {
    if (found) return;
    found = source.binary(compile_key);
    if (!found || &source != store.get()) return;
    // Checked last, so that files put there since it was opened count.
    const std::string writer = other_writer();
    if (writer.empty()) return;
    found.reset();
    log_once(LogLevel::info,
             fmt::format("ce does not use the compiled kernels in {}, because {}: it compiles them again",
                         path.string(), writer));
  });
  return found;
}

bool Cache::Impl::is_verified(const std::string& compile_key, const std::string& machine) {
  if (own_code != nullptr && own_code->is_verified(compile_key, machine)) return true;
  bool found = false;
  read([&](Store& source) {
    if (source.is_verified(compile_key, machine))
      found = found || &source != store.get() || other_writer().empty();
  });
  return found;
}

void Cache::Impl::attach(const fs::path& file) {
  const FileSizeSignalBlock no_signal;
  if (read_only) {
    const FileId id = FileId::with_change(file);
    std::string writer = other_writer_of(file);
    store = open_reader(file);
    other_writer_at_opening = std::move(writer);
    path = file;
    file_id = id;
    return;
  }
  constexpr int most_successors = 3;
  for (int successors = 0;; ++successors) {
    if (mends) create_file(file);
    const FileId id = FileId::of(file);
    try {
      std::string writer = other_writer_of(file);
      Opened opened = open_file(file, mends ? IfEmpty::fill : IfEmpty::refuse);
      store = std::move(opened.store);
      other_writer_at_opening = std::move(writer);
      path = file;
      file_id = id;
      examined = false;
      persistent = opened.problem.empty();
      if (!persistent) degrade(opened.problem);
      return;
    } catch (const DatabaseError&) {
      // The file may have been set aside while it was opened.
      if (FileId::of(file) != id && successors < most_successors) continue;
      if (store == nullptr) file_id = id;  // the file that mend() sets aside
      throw;
    }
  }
}

void Cache::Impl::follow(Use use) {
  try {
    attach(path);
  } catch (const Error&) {
    if (use == Use::write) throw;  // the file that is open can still be read
  }
}

void Cache::Impl::examine() {
  if (std::exchange(examined, true) || !mends || !persistent) return;
  const std::int64_t bytes = bytes_on_disk(path);
  if (bytes > most_bytes_to_examine) return;
  const Store::Depth depth = Store::usual_depth(bytes);
  const bool large = depth != Store::Depth::full;
  if (large && was_examined(path)) return;
  store->expect_ours(path);
  const std::string damage = store->first_damage(depth);
  if (!damage.empty()) mend(damage);
  if (large) mark_examined(path);
}

void Cache::Impl::mend(const std::string& cause) {
  const FileSizeSignalBlock no_signal;
  Repair done = repair(path, file_id, cause);
  if (done.memory == nullptr) {
    if (!done.report.empty()) log_once(LogLevel::warning, done.report);
    attach(path);
    return;
  }
  store = std::move(done.memory);
  persistent = false;
  degrade(done.report);
  log_once(LogLevel::warning, problem);
}

std::string Cache::Impl::damage_behind(const SQLite::Exception& error) {
  bool certain = false;
  switch (code_of(error)) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT: certain = true; break;
    case SQLITE_ERROR:
    case SQLITE_CONSTRAINT: break;  // for example, a changed text of a table or a trigger
    default: return {};
  }
  try {
    store->expect_ours(path);
    return certain ? error.what() : store->first_damage(Store::Depth::schema);
  } catch (const SQLite::Exception& other) {
    if (certain) return error.what();
    return is_damage(other) ? other.what() : "";
  }
}

void Cache::Impl::degrade(const std::string& cause) {
  problem = cause + "; until then, new measurements are lost when this process ends";
}

void Cache::Impl::say_if_empty() {
  if (!persistent || store->counts().measurements > 0) return;
  log_once(LogLevel::warning, fmt::format("the tuning database {} is empty: to copy a database in use, also "
                                          "copy the file {}-wal, or run ce-tune db vacuum before",
                                          path.string(), path.filename().string()));
}

Cache::Impl::~Impl() {
  const FileSizeSignalBlock
      no_signal;  // covers delivery, and the log, which is copied into the file as it is closed
  deliver_at_end();
  store.reset();
}

void Cache::Impl::deliver_at_end() noexcept {
  if (refused == nullptr || !persistent) return;
  try {
    deliver();
  } catch (const std::exception& error) {
    try {
      log(LogLevel::warning, fmt::format("{} measurements could not be written to {} and are lost ({})",
                                         refused->counts().measurements, path.string(), error.what()));
    } catch (...) {  // a destructor cannot report an error
    }
  }
}

}  // namespace ce::cache
