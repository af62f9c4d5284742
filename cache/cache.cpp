#include "cache/cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <tuple>
#include <utility>

#include "base/environment.hpp"
#include "base/time.hpp"
#include "cache/bundle.hpp"
#include "cache/cache_impl.hpp"
#include "cache/export.hpp"
#include "cache/file_system.hpp"
#include "cache/ownership.hpp"
#include "cache/possible.hpp"
#include "ce/error.hpp"

namespace ce::cache {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

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

Cache::Cache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Cache::Cache(Cache&&) noexcept = default;
Cache& Cache::operator=(Cache&&) noexcept = default;
Cache::~Cache() = default;

Cache Cache::open(const fs::path& path) {
  auto impl = std::make_unique<Impl>();
  try {
    if (path.empty()) throw DatabaseError("there is no path for the tuning database: set CE_DB or HOME");
    impl->mends = true;
    impl->path = fs::absolute(path);
    std::error_code none;
    // Without its log, a database that no program has closed yet contains a single page without tables.
    constexpr std::uintmax_t page = 4096;
    const bool may_lack_log =
        fs::file_size(impl->path, none) == page && !fs::exists(impl->path.string() + "-wal", none);
    try {
      impl->attach(impl->path);
      if (may_lack_log) impl->say_if_empty();
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
  impl->attach(existing_file(path));
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

Cache Cache::read_existing(const fs::path& path) {
  auto impl = std::make_unique<Impl>();
  impl->read_only = true;
  impl->strict = true;
  impl->attach(existing_file(path));
  return Cache(std::move(impl));
}

Cache Cache::of_export(std::string_view lines, const std::string& name) {
  std::istringstream in{std::string(lines)};
  auto impl = std::make_unique<Impl>();
  impl->store = Store::in_memory();
  impl->store->add(read_export(in, name));
  return Cache(std::move(impl));
}

Cache Cache::of_bundle(const fs::path& path) {
  auto impl = std::make_unique<Impl>();
  impl->store = Store::in_memory();
  // Checked first: a file that replaces it afterwards was not checked.
  std::string writer = other_writer_of(path);
  const BundleFile file = read_bundle_file(path);
  if (!file.is_vouched_for) impl->other_writer_at_opening = std::move(writer);
  fill(*impl->store, file.bundle);
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
    status.problem = fmt::format("{} cannot be written ({}); new measurements are only in memory",
                                 impl_->path.string(), impl_->refusal);
  }
  impl_->read([&](Store& source) {
    const Store::Counts counts = source.counts();
    if (&source == impl_->store.get()) {
      status.schema_version = source.schema_version();
      status.journal_mode = source.journal_mode();
    }
    status.measurements += counts.measurements;
    status.binaries += counts.binaries;
  });
  status.keys = static_cast<std::int64_t>(impl_->find("").size());
  return status;
}

void Cache::flush(std::chrono::seconds patience) const {
  constexpr std::chrono::milliseconds pause{10};  // in addition to SQLite's own waits
  const auto deadline = steady_clock::now() + patience;
  for (;; std::this_thread::sleep_for(pause)) {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->refused == nullptr || !impl_->persistent) return;
    try {
      return impl_->deliver();
    } catch (const std::exception& error) {
      if (!is_locked(error) || steady_clock::now() >= deadline) return;
    }
    log_once(LogLevel::warning, fmt::format("{} is locked by another process: ce waits for up to {} s, to "
                                            "write the measurements that are only in memory",
                                            impl_->path.string(), patience.count()));
  }
}

void Cache::add(std::span<const Measurement> measurements) {
  std::vector<Measurement> dated(measurements.begin(), measurements.end());
  const std::string now = utc_now();
  for (Measurement& measurement : dated)
    if (measurement.created_at.empty()) measurement.created_at = now;
  impl_->write([&](Store& store) { store.add(dated); });
}

std::vector<Measurement> Cache::measurements(const Key& key) const {
  return impl_->measurements(key, &Store::rows);
}

std::vector<std::string> Cache::identities(const Key& key) const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<std::string> all;
  impl_->read([&](Store& source) {
    for (std::string& identity : source.identities(key)) all.push_back(std::move(identity));
  });
  return all;
}

std::vector<Measurement> Cache::history(const Key& key) const {
  return impl_->measurements(key, &Store::history);
}

std::optional<Measurement> Cache::final_of(const Key& key, std::span<const std::string> digests,
                                           const ChooseFinalist& choose) const {
  const std::lock_guard lock(impl_->mutex);
  // The file belongs to another user, who may have written anything.
  const ChooseFinalist choose_possible = [&](std::vector<Finalist>& list) {
    std::erase_if(list, [](const Finalist& one) { return !is_possible(one); });
    return choose(list);
  };
  std::optional<Measurement> found;
  if (impl_->refused == nullptr)
    impl_->read([&](Store& source) {
      found = source.final_of(key, digests, impl_->read_only ? choose_possible : choose);
    });
  return found;
}

std::optional<Pin> Cache::pin(const Key& key) const {
  const std::lock_guard lock(impl_->mutex);
  std::optional<Pin> found;
  impl_->read([&](Store& source) {
    if (!found) found = source.pin_of(key);
  });
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
    source.expect_all_listed();
    for (KeySummary& summary : source.keys()) {
      const auto end = all.begin() + others;
      const auto known =
          std::find_if(all.begin(), end, [&](const KeySummary& other) { return other.key == summary.key; });
      if (known == end)
        all.push_back(std::move(summary));
      else
        *known = summarize(summary.key, impl_->measurements_in(impl_->whole_rows(summary.key, &Store::rows)));
    }
  });
  std::sort(all.begin(), all.end(), [](const KeySummary& a, const KeySummary& b) {
    return std::tie(a.key.device, a.key.problem) < std::tie(b.key.device, b.key.problem);
  });
  return all;
}

std::vector<Key> Cache::find(std::string_view prefix) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->find(std::string(prefix));
}

void Cache::checkpoint() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->persistent && std::exchange(impl_->wrote, false)) impl_->store->checkpoint();
}

void Cache::keep_binary(std::string_view compile_key, std::span<const std::byte> image,
                        const BinaryInfo& info) {
  constexpr std::size_t limit = std::numeric_limits<int>::max();
  if (image.size() > limit)
    throw InvalidArgument("image", fmt::format("{} bytes long", image.size()),
                          fmt::format("at most {}", limit));
  const std::string key(compile_key);
  impl_->write_of_code([&](Store& store) { store.keep_binary(key, image, info); });
}

std::optional<std::vector<std::byte>> Cache::binary(std::string_view compile_key) const {
  const std::string key(compile_key);
  {
    const std::lock_guard lock(impl_->mutex);
    if (auto found = impl_->binary(key)) return found;
  }
  for (const Layer& layer : lower())
    if (auto found = layer.cache.binary(key)) return found;
  return std::nullopt;
}

std::vector<std::string> Cache::unnamed_binaries() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<std::string> keys;
  impl_->read([&](Store& source) {
    for (std::string& key : source.unnamed_binaries()) keys.push_back(std::move(key));
  });
  return keys;
}

void Cache::keep_verified(std::span<const std::string> compile_keys, const std::string& machine) {
  impl_->write_of_code([&](Store& store) { store.keep_verified(compile_keys, machine); });
}

bool Cache::is_verified(const std::string& compile_key, const std::string& machine) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->is_verified(compile_key, machine);
}

std::optional<TuningLock> Cache::try_tuning_lock(const Key& key) const {
  fs::path database;
  {
    const std::lock_guard lock(impl_->mutex);
    if (!impl_->persistent) return TuningLock::unguarded();
    database = real_path(impl_->path);
    if (!std::exchange(impl_->removed_abandoned_tuning_locks, true)) remove_abandoned_tuning_locks(database);
  }
  try {
    return TuningLock::take(tuning_lock_file(database, key.id()), database);
  } catch (const DatabaseError& error) {
    log_once(
        LogLevel::warning,
        fmt::format("processes cannot agree on which of them tunes a problem ({}), so each of them tunes it",
                    error.what()));
    return TuningLock::unguarded();
  }
}

}  // namespace ce::cache
