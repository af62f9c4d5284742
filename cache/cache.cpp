#include "cache/cache.hpp"

#include <SQLiteCpp/Exception.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <limits>
#include <mutex>
#include <set>
#include <sstream>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include "cache/export.hpp"
#include "cache/layers.hpp"
#include "cache/open.hpp"
#include "cache/repair.hpp"
#include "cache/store.hpp"
#include "ce/base/digest.hpp"
#include "ce/base/environment.hpp"
#include "ce/base/error.hpp"
#include "ce/base/log.hpp"

namespace ce::cache {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

/// Every attempt can cost the busy timeout, so a file that refused a write is left alone for a while.
constexpr std::chrono::seconds pause_after_failure{30};

/// Larger files take longer to examine than a tuning should wait: ce-tune db verify does.
constexpr std::int64_t most_bytes_to_examine = std::int64_t{1} << 30,
                       most_bytes_to_examine_in_full = 16 << 20;

/// A larger one than that is examined by one process that writes, and not by others for so long: many that begin at the
/// same time would keep the machine busy.
constexpr std::chrono::hours examination_lasts{1};

fs::path mark_of(const fs::path& database) { return database.string() + "-examined"; }

bool was_examined(const fs::path& database) {
  std::error_code error;
  const auto at = fs::last_write_time(mark_of(database), error);
  return !error && fs::file_time_type::clock::now() - at < examination_lasts;
}

void mark_examined(const fs::path& database) {
  try {
    create_empty(mark_of(database));
    fs::last_write_time(mark_of(database), fs::file_time_type::clock::now());
  } catch (const std::exception&) {  // then the next process examines it, too
  }
}

KeySummary summarize(const Key& key, const std::vector<Measurement>& list) {
  std::set<std::string_view> configs, quarantined;
  for (const Measurement& measurement : list) {
    configs.insert(measurement.config);
    if (measurement.outcome == Outcome::quarantined) quarantined.insert(measurement.config);
  }
  return {.key = key,
          .measurements = static_cast<std::int64_t>(list.size()),
          .configs = static_cast<std::int64_t>(configs.size()),
          .quarantined = static_cast<std::int64_t>(quarantined.size()),
          .first_at = list.empty() ? "" : list.front().created_at,
          .last_at = list.empty() ? "" : list.back().created_at};
}

}  // namespace

std::string Key::id() const { return digest({problem, device}).substr(0, 12); }

std::string_view name(Outcome outcome) noexcept {
  return outcome == Outcome::measured ? "measured" : "quarantined";
}

/// The store, and beside it what the store's file refused to take. The mutex guards both: SQLite allows one
/// user of a connection at a time, and writes are rare next to what they record.
struct Cache::Impl {
  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  /// Runs `action` on the store, or on a store in memory when the file fails, so that what was measured
  /// stays usable in this process. Later writes carry it over to the file.
  template <class Action>
  void write(Action action);
  /// Runs `action` on the store and then on what its file refused; one that fails is reported and left out, where
  /// `strict` does not make it a DatabaseError.
  template <class Action>
  void read(Action action);
  [[nodiscard]] std::string unreadable(const std::exception& error) const;
  /// What the file had refused is in it.
  void end_refusal();
  /// Writes what the file had refused. \throws as on_store()
  void deliver();

  /// Opens the file, which exists; \throws DatabaseError
  void attach(const fs::path& file, IfOlder if_older = IfOlder::update);
  /// Looks for damage that no query would notice, such as a row that an index has lost: once, before the first write,
  /// which a search of seconds has gone before.
  void examine();
  /// What is damaged where an error may come of damage; empty where nothing is.
  /// \throws DatabaseError where it comes of a newer ce, which has brought the file to a schema of its own meanwhile
  [[nodiscard]] std::string damage_behind(const SQLite::Exception& error);
  /// Sets a damaged file aside and goes on with what can be read of it; says so.
  void mend(const std::string& cause);
  enum class Use : std::uint8_t { read, write };
  /// Runs `action` on the store; on its successor, where the file turns out to be damaged or another has taken its
  /// place. What was read is of one of them; what is written is in the one that is at the path afterwards.
  template <class Action>
  void on_store(Use use, Action action);
  /// attach(), where another file than the open one is at the path now, or none.
  void follow(Use use);
  /// Gives the problem its end: what it means for the caller.
  void degrade(const std::string& cause);

  [[nodiscard]] std::vector<Measurement> measurements(const Key& key);
  [[nodiscard]] std::vector<Key> find(const std::string& prefix);

  std::mutex mutex;
  fs::path path;
  FileId file_id;
  bool read_only = false;  ///< by open_to_read()
  bool mends = false;      ///< may set a damaged file aside
  bool strict = false;     ///< what cannot be read is an error of who asks
  bool examined = false;   ///< the open file, by examine()
  bool persistent = false;
  /// The store is a copy of a file with this schema; the first write brings the file up to date where it can be written.
  std::optional<int> schema_of_original;
  std::string problem;
  std::unique_ptr<Store> store;
  std::unique_ptr<Store> refused;
  steady_clock::time_point retry_at;

  bool layered = false;
  std::mutex opening;
  std::optional<std::vector<Layer>> lower;
};

std::string Cache::Impl::unreadable(const std::exception& error) const {
  return fmt::format("cannot read the tuning database {} ({}): going on without what it holds", path.string(),
                     error.what());
}

void Cache::Impl::end_refusal() {
  refused.reset();
  log(LogLevel::info,
      fmt::format("{} can be written again: what it had refused is in it now", path.string()));
}

void Cache::Impl::deliver() {
  on_store(Use::write, [&](Store& target) { refused->copy_into(target, true); });
  end_refusal();
}

template <class Action>
void Cache::Impl::write(Action action) {
  const std::lock_guard lock(mutex);
  if (!problem.empty()) log_once(LogLevel::warning, problem);
  try {
    if (refused == nullptr || steady_clock::now() >= retry_at) {
      on_store(Use::write, [&](Store& target) {
        if (refused != nullptr) refused->copy_into(target, true);
        action(target);
      });
      if (refused != nullptr) end_refusal();
      return;
    }
  } catch (const std::exception& error) {
    retry_at = steady_clock::now() + pause_after_failure;
    log_once(
        LogLevel::warning,
        fmt::format("cannot write to the tuning database {} ({}): new results are kept in memory, and the "
                    "file is tried again every {} s",
                    path.string(), error.what(), pause_after_failure.count()));
  }
  try {
    if (refused == nullptr) refused = Store::in_memory();
    action(*refused);
  } catch (const std::exception& error) {
    log_once(LogLevel::warning, fmt::format("cannot keep a result in memory ({})", error.what()));
  }
}

template <class Action>
void Cache::Impl::read(Action action) {
  for (Store* source : {store.get(), refused.get()}) {
    if (source == nullptr) continue;
    try {
      if (source == refused.get())
        action(*source);
      else
        on_store(Use::read, action);
    } catch (const SQLite::Exception& error) {
      if (strict) rethrow(path, error);
      log_once(LogLevel::warning, unreadable(error));
    } catch (const std::exception& error) {
      if (strict) throw;
      log_once(LogLevel::warning, unreadable(error));
    }
  }
}

std::vector<Measurement> Cache::Impl::measurements(const Key& key) {
  std::vector<Measurement> all;
  read([&](Store& source) {
    auto list = source.measurements(key);
    if (all.empty())
      all = std::move(list);
    else
      std::move(list.begin(), list.end(), std::back_inserter(all));
  });
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

void Cache::Impl::attach(const fs::path& file, IfOlder if_older) {
  if (read_only) {
    const FileId id = FileId::with_change(file);
    store = open_reader(file);
    path = file;
    file_id = id;
    return;
  }
  const FileId id = FileId::of(file);
  Opened opened = open_file(file, mends ? IfEmpty::fill : IfEmpty::refuse, if_older);
  store = std::move(opened.store);
  schema_of_original = opened.schema_of_original;
  path = file;
  file_id = id;
  examined = false;
  persistent = opened.problem.empty();
  if (!persistent) degrade(opened.problem);
}

void Cache::Impl::follow(Use use) {
  try {
    if (mends) create_empty(path);
    attach(path, strict && use == Use::read ? IfOlder::copy : IfOlder::update);
  } catch (const Error&) {
    if (use == Use::write) throw;  // the file that is open can still be read
  }
}

void Cache::Impl::examine() {
  if (std::exchange(examined, true) || !mends || !persistent) return;
  const std::int64_t bytes = bytes_on_disk(path);
  if (bytes > most_bytes_to_examine) return;
  const bool large = bytes > most_bytes_to_examine_in_full;
  if (large && was_examined(path)) return;
  store->expect_ours(path);
  const std::string damage = store->first_damage(large ? Store::Depth::pages : Store::Depth::full);
  if (!damage.empty()) mend(damage);
  if (large) mark_examined(path);
}

void Cache::Impl::mend(const std::string& cause) {
  Repair done = repair(path, file_id, cause);
  if (done.memory == nullptr) {
    if (!done.report.empty()) log_once(LogLevel::warning, done.report);
    attach(path);
    return;
  }
  store = std::move(done.memory);
  schema_of_original.reset();
  persistent = false;
  degrade(done.report);
  log_once(LogLevel::warning, problem);
}

std::string Cache::Impl::damage_behind(const SQLite::Exception& error) {
  bool certain = false;
  switch (error.getErrorCode()) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT: certain = true; break;
    case SQLITE_ERROR:
    case SQLITE_CONSTRAINT: break;  // the text of a table or a trigger, perhaps
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

template <class Action>
void Cache::Impl::on_store(Use use, Action action) {
  constexpr int most_successors = 3;
  const auto moved = [&] {
    return read_only ? FileId::with_change(path) != file_id : persistent && FileId::of(path) != file_id;
  };
  for (int successors = 0;; ++successors) {
    try {
      if (moved()) follow(use);
      if (use == Use::write && persistent && schema_of_original) attach(path);
      if (use == Use::write) examine();
      action(*store);
      // A damaged file can have been set aside after the look before: then this is in the wrong one.
      if (use == Use::read || !moved() || successors == most_successors) return;
    } catch (const SQLite::Exception& error) {
      const std::string damage = mends && persistent ? damage_behind(error) : "";
      if (damage.empty() || successors == most_successors) throw;
      mend(damage);
    }
  }
}

void Cache::Impl::degrade(const std::string& cause) {
  problem = cause + "; until then, new measurements last as long as this process";
}

Cache::Impl::~Impl() {
  if (refused == nullptr || !persistent) return;
  try {
    deliver();
  } catch (const std::exception& error) {
    try {
      log(LogLevel::warning, fmt::format("{} measurements could not be written to {} and are lost ({})",
                                         refused->counts().measurements, path.string(), error.what()));
    } catch (...) {  // nobody is left to tell
    }
  }
}

Cache::Cache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Cache::Cache(Cache&&) noexcept = default;
Cache& Cache::operator=(Cache&&) noexcept = default;
Cache::~Cache() = default;

Cache Cache::open(const fs::path& path) {
  auto impl = std::make_unique<Impl>();
  try {
    if (path.empty()) throw DatabaseError("no place for the tuning database is known: set CE_DB or HOME");
    impl->mends = true;
    impl->path = fs::absolute(path);
    create_file(impl->path);
    impl->file_id = FileId::of(impl->path);
    try {
      impl->attach(impl->path);
    } catch (const Damaged& damage) {
      impl->mend(damage.cause());
    }
  } catch (const std::exception& error) {
    impl->path.clear();
    impl->store = Store::in_memory();
    impl->degrade(error.what());
  }
  if (!impl->problem.empty()) log_once(LogLevel::warning, impl->problem);
  return Cache(std::move(impl));
}

Cache Cache::open_existing(const fs::path& path) {
  auto impl = std::make_unique<Impl>();
  impl->strict = true;
  impl->attach(existing_file(path), IfOlder::copy);
  return Cache(std::move(impl));
}

Cache Cache::open_copy(const fs::path& path) {
  auto impl = std::make_unique<Impl>();
  impl->strict = true;
  impl->path = existing_file(path);
  impl->store = copy_file(impl->path);
  impl->problem = fmt::format("a copy of {}", impl->path.string());
  return Cache(std::move(impl));
}

Cache Cache::in_memory() {
  auto impl = std::make_unique<Impl>();
  impl->store = Store::in_memory();
  return Cache(std::move(impl));
}

Cache Cache::with_layers(Cache cache) {
  cache.impl_->layered = true;
  return cache;
}

Cache Cache::open_to_read(const fs::path& path) {
  auto impl = std::make_unique<Impl>();
  impl->read_only = true;
  impl->attach(existing_file(path));
  return Cache(std::move(impl));
}

Cache Cache::of_export(std::string_view lines) {
  std::istringstream in{std::string(lines)};
  auto impl = std::make_unique<Impl>();
  impl->store = Store::in_memory();
  impl->store->add(read_export(in, "the export"));
  return Cache(std::move(impl));
}

std::span<const Layer> Cache::lower() const {
  if (!impl_->layered) return {};
  const std::lock_guard lock(impl_->opening);
  if (!impl_->lower) impl_->lower = open_lower_layers();
  return *impl_->lower;
}

fs::path Cache::default_path() {
  if (const auto file = environment_variable("CE_DB")) return *file;
  // The XDG Base Directory Specification: relative paths are invalid and to be ignored.
  const auto data = environment_variable("XDG_DATA_HOME");
  if (data && fs::path(*data).is_absolute()) return fs::path(*data) / "ce" / "ce.db";
  if (const auto home = environment_variable("HOME"))
    return fs::path(*home) / ".local" / "share" / "ce" / "ce.db";
  return {};
}

Status Cache::status() const {
  const std::lock_guard lock(impl_->mutex);
  Status status{.path = impl_->path, .persistent = impl_->persistent, .problem = impl_->problem};
  if (!impl_->path.empty()) status.file_bytes = bytes_on_disk(impl_->path);
  if (impl_->refused != nullptr) {
    status.persistent = false;
    status.problem = fmt::format("{} refuses to be written; what was measured since is in memory only",
                                 impl_->path.string());
  }
  impl_->read([&](Store& source) {
    const Store::Counts counts = source.counts();
    if (&source == impl_->store.get()) {
      status.schema_version = impl_->schema_of_original.value_or(source.schema_version());
      status.journal_mode = source.journal_mode();
    }
    status.measurements += counts.measurements;
    status.binaries += counts.binaries;
  });
  status.keys = static_cast<std::int64_t>(impl_->find("").size());
  return status;
}

void Cache::flush(std::chrono::seconds patience) const {
  constexpr std::chrono::milliseconds pause{10};  // after those that SQLite makes
  const auto deadline = steady_clock::now() + patience;
  for (;; std::this_thread::sleep_for(pause)) {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->refused == nullptr || !impl_->persistent) return;
    try {
      return impl_->deliver();
    } catch (const std::exception& error) {
      if (!is_locked(error) || steady_clock::now() >= deadline) return;
    }
    log_once(LogLevel::warning,
             fmt::format("{} is locked by another process: waiting for up to {} s, to write what it refused",
                         impl_->path.string(), patience.count()));
  }
}

void Cache::add(std::span<const Measurement> measurements) {
  std::vector<Measurement> dated(measurements.begin(), measurements.end());
  for (Measurement& measurement : dated)
    if (measurement.created_at.empty()) measurement.created_at = utc_now();
  impl_->write([&](Store& store) { store.add(dated); });
}

std::vector<Measurement> Cache::measurements(const Key& key) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->measurements(key);
}

std::optional<Measurement> Cache::final_of(const Key& key, std::span<const std::string> digests,
                                           const ChooseFinalist& choose) const {
  const std::lock_guard lock(impl_->mutex);
  std::optional<Measurement> found;
  if (impl_->refused == nullptr)
    impl_->read([&](Store& source) { found = source.final_of(key, digests, choose); });
  return found;
}

bool Cache::has(const Key& key, std::span<const std::string> digests) const {
  const std::lock_guard lock(impl_->mutex);
  bool found = impl_->refused != nullptr;
  if (!found) impl_->read([&](Store& source) { found = found || source.has(key, digests); });
  return found;
}

std::vector<KeySummary> Cache::keys() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<KeySummary> all;
  impl_->read([&](Store& source) {
    const auto others = static_cast<std::ptrdiff_t>(all.size());
    for (KeySummary& summary : source.keys()) {
      const auto end = all.begin() + others;
      const auto known =
          std::find_if(all.begin(), end, [&](const KeySummary& other) { return other.key == summary.key; });
      if (known == end)
        all.push_back(std::move(summary));
      else
        *known = summarize(summary.key, impl_->measurements(summary.key));
    }
  });
  std::sort(all.begin(), all.end(), [](const KeySummary& a, const KeySummary& b) {
    return std::tie(a.key.device, a.key.problem) < std::tie(b.key.device, b.key.problem);
  });
  return all;
}

std::vector<Key> Cache::find(std::string_view prefix) const {
  std::string lower(prefix);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::lock_guard lock(impl_->mutex);
  return impl_->find(lower);
}

void Cache::keep_binary(std::string_view compile_key, std::span<const std::byte> image,
                        const BinaryInfo& info) {
  constexpr std::size_t limit = std::numeric_limits<int>::max();
  if (image.size() > limit)
    throw InvalidArgument("image", fmt::format("{} bytes long", image.size()),
                          fmt::format("at most {}", limit));
  const std::string key(compile_key);
  impl_->write([&](Store& store) { store.keep_binary(key, image, info); });
}

std::optional<std::vector<std::byte>> Cache::binary(std::string_view compile_key) const {
  const std::string key(compile_key);
  const std::lock_guard lock(impl_->mutex);
  std::optional<std::vector<std::byte>> found;
  impl_->read([&](Store& source) {
    if (!found) found = source.binary(key);
  });
  return found;
}

std::optional<Claim> Cache::claim(const Key& key) const {
  fs::path file;
  {
    const std::lock_guard lock(impl_->mutex);
    if (!impl_->persistent) return Claim::unguarded();
    file = impl_->path.string() + "-claim-" + key.id();
  }
  try {
    return Claim::take(file);
  } catch (const DatabaseError& error) {
    log_once(
        LogLevel::warning,
        fmt::format("processes cannot agree on which of them tunes a problem ({}): each does", error.what()));
    return Claim::unguarded();
  }
}

}  // namespace ce::cache
