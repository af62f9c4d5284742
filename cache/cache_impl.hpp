#pragma once
/// \file
/// How a Cache stays with its file: it handles failures, damage and replacement of the file.

#include <SQLiteCpp/Exception.h>
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/file_size_signal.hpp"
#include "base/log.hpp"
#include "cache/cache.hpp"
#include "cache/layers.hpp"
#include "cache/open.hpp"
#include "cache/repair/repair.hpp"
#include "cache/store.hpp"

namespace ce::cache {

/// The store, and a second one with the writes that its file refused. The mutex guards both: SQLite allows one user of
/// a connection at a time, and writes are rare compared with the work that they record.
struct Cache::Impl {
  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  /// Runs `action` on the store, or on a store in memory if the file fails, so that measurements stay usable in this
  /// process. Later writes copy them to the file.
  template <class Action>
  void write(Action action);
  /// Runs `action` on the store and then on the refused writes. An error of either is logged and its store is left out;
  /// with `strict` it is a DatabaseError.
  template <class Action>
  void read(Action action);
  [[nodiscard]] std::string unreadable(const std::exception& error) const;
  /// Called when the file contains the refused writes.
  void end_refusal();
  /// Writes the refused writes to the file. \throws as on_store()
  void deliver();
  /// Like deliver(), but logs what is lost.
  void deliver_at_end() noexcept;

  /// Opens the file; creates it if this object may set a damaged one aside. \throws DatabaseError
  void attach(const std::filesystem::path& file);
  /// Checks once, before the first write, for damage that no query would notice, such as a row that is missing in an
  /// index. A search of seconds has preceded that write.
  void examine();
  /// The damage that may have caused an error; empty if there is none.
  /// \throws DatabaseError if a newer ce has changed the file's schema meanwhile
  [[nodiscard]] std::string damage_behind(const SQLite::Exception& error);
  /// Sets a damaged file aside and goes on with its readable contents; logs that.
  void mend(const std::string& cause);
  enum class Use : std::uint8_t { read, write };
  /// Runs `action` on the store. If the file turns out to be damaged or replaced, runs it on the successor. Reads may
  /// come from either; writes are in the file that is at the path afterwards.
  template <class Action>
  void on_store(Use use, Action action);
  /// Calls attach() if the file at the path is not the open one, or is missing.
  void follow(Use use);
  /// Warns about an empty file, which may be a copy that was made without the log.
  void say_if_empty();
  /// Logs the problem, with its consequence for the caller.
  void degrade(const std::string& cause);

  using Reader = KeyRows (Store::*)(const Key& key);
  /// The key's measurements, oldest first. Called without the mutex: comparing rows with their identities takes longer
  /// than reading them, and other threads read meanwhile.
  [[nodiscard]] std::vector<Measurement> measurements(const Key& key, Reader reader);
  /// Rows of the store and of the refused writes, compared with their identities; read() handles damage.
  [[nodiscard]] std::vector<KeyRows> whole_rows(const Key& key, Reader reader);
  /// The measurements in the row sets, oldest first. \param parts  compared with their identities
  [[nodiscard]] std::vector<Measurement> measurements_in(std::vector<KeyRows> parts) const;
  [[nodiscard]] std::vector<Key> find(const std::string& prefix);

  /// The other user who can have written the open file, so that no binaries are read from or written to it; empty if
  /// there is none.
  [[nodiscard]] std::string other_writer() const;
  [[nodiscard]] std::optional<std::vector<std::byte>> binary(const std::string& compile_key);
  [[nodiscard]] bool is_verified(const std::string& compile_key, const std::string& machine);
  /// Runs write(); if others can have written the file, runs `action` on this process's own store.
  template <class Action>
  void write_of_code(Action action);

  std::mutex mutex;
  std::filesystem::path path;
  bool removed_abandoned_tuning_locks = false;
  FileId file_id;
  bool read_only = false;  ///< set by open_to_read()
  bool mends = false;      ///< may set a damaged file aside
  bool strict = false;     ///< unreadable parts are errors for the caller
  bool examined = false;   ///< examine() has checked the open file
  bool persistent = false;
  bool wrote = false;  ///< since the last checkpoint()
  std::string problem;
  std::unique_ptr<Store> store;
  std::unique_ptr<Store> refused;
  std::string refusal;  ///< why the file refused writes
  /// Compiled kernels of this process, if others can write the file.
  std::unique_ptr<Store> own_code;
  std::string other_writer_at_opening;
  /// Every attempt can take the busy timeout, so a file that refused a write is not tried again for a while.
  static constexpr std::chrono::seconds pause_after_failure{30};
  std::chrono::steady_clock::time_point retry_at;

  bool layered = false;
  std::mutex opening;
  std::optional<std::vector<Layer>> lower;
};

template <class Action>
void Cache::Impl::write(Action action) {
  const std::lock_guard lock(mutex);
  if (!problem.empty()) log_once(LogLevel::warning, problem);
  try {
    if (refused == nullptr || std::chrono::steady_clock::now() >= retry_at) {
      on_store(Use::write, [&](Store& target) {
        if (refused != nullptr) target.merge(std::array{refused.get()}, true, Triggers::on);
        action(target);
      });
      wrote = true;
      if (refused != nullptr) end_refusal();
      return;
    }
  } catch (const std::exception& error) {
    retry_at = std::chrono::steady_clock::now() + pause_after_failure;
    refusal = error.what();
    log_once(LogLevel::warning,
             fmt::format("cannot write to the tuning database {} ({}){}: ce keeps new results in memory, and "
                         "tries to write them every {} s",
                         path.string(), error.what(), limit_on_files(), pause_after_failure.count()));
  }
  try {
    if (refused == nullptr) refused = Store::in_memory();
    action(*refused);
  } catch (const std::exception& error) {
    log_once(LogLevel::warning, fmt::format("cannot keep a result in memory ({})", error.what()));
  }
}

template <class Action>
void Cache::Impl::write_of_code(Action action) {
  {
    const std::lock_guard lock(mutex);
    if (!other_writer().empty()) {
      if (own_code == nullptr) own_code = Store::in_memory();
      return action(*own_code);
    }
  }
  write(action);
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

template <class Action>
void Cache::Impl::on_store(Use use, Action action) {
  constexpr int most_successors = 3;
  const FileSizeSignalBlock no_signal;
  const auto moved = [&] {
    return read_only ? FileId::with_change(path) != file_id : persistent && FileId::of(path) != file_id;
  };
  for (int successors = 0;; ++successors) {
    try {
      if (moved()) follow(use);
      if (use == Use::write) examine();
      action(*store);
      // A damaged file may have been set aside after that check: then the write went into the old file.
      if (use == Use::read || !moved() || successors == most_successors) return;
    } catch (const SQLite::Exception& error) {
      // A file without a log is read without locks, and may have been changed meanwhile.
      if (read_only && moved() && successors < most_successors) continue;
      const std::string damage = mends && persistent ? damage_behind(error) : "";
      if (damage.empty() || successors == most_successors) throw;
      mend(damage);
    }
  }
}

}  // namespace ce::cache
