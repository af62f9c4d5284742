#pragma once
/// \file
/// How a Cache keeps to its file: what it does where that fails, is damaged, or gives way to another.

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
  /// The same, or says what is lost.
  void deliver_at_end() noexcept;

  /// Opens the file; creates it where it may set a damaged one aside. \throws DatabaseError
  void attach(const std::filesystem::path& file);
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
  /// Warns of an empty file, which may be a copy that was made without the log.
  void say_if_empty();
  /// Gives the problem its end: what it means for the caller.
  void degrade(const std::string& cause);

  using Reader = KeyRows (Store::*)(const Key& key);
  /// Oldest first. To be called without the mutex: while rows are compared with their identities, which takes longer than
  /// to read them, others read.
  [[nodiscard]] std::vector<Measurement> measurements(const Key& key, Reader reader);
  /// Rows of the store and of what its file refused, compared with their identities while read() deals with what is damaged.
  [[nodiscard]] std::vector<KeyRows> whole_rows(const Key& key, Reader reader);
  /// Oldest first. \param parts  whole
  [[nodiscard]] std::vector<Measurement> measurements_in(std::vector<KeyRows> parts) const;
  [[nodiscard]] std::vector<Key> find(const std::string& prefix);

  /// Which other user can have written the open file, so that no code is taken from it or given to it; empty where none
  /// can.
  [[nodiscard]] std::string other_writer() const;
  [[nodiscard]] std::optional<std::vector<std::byte>> binary(const std::string& compile_key);
  [[nodiscard]] bool is_verified(const std::string& compile_key, const std::string& machine);
  /// write(), but where others can have written the file, in this process.
  template <class Action>
  void write_of_code(Action action);

  std::mutex mutex;
  std::filesystem::path path;
  bool removed_abandoned_tuning_locks = false;
  FileId file_id;
  bool read_only = false;  ///< by open_to_read()
  bool mends = false;      ///< may set a damaged file aside
  bool strict = false;     ///< what cannot be read is an error of the caller's
  bool examined = false;   ///< the open file, by examine()
  bool persistent = false;
  bool wrote = false;  ///< since the last checkpoint()
  std::string problem;
  std::unique_ptr<Store> store;
  std::unique_ptr<Store> refused;
  std::string refusal;  ///< why
  /// Compiled kernels of this process, where others can write the file.
  std::unique_ptr<Store> own_code;
  std::string other_writer_at_opening;
  /// Every attempt can cost the busy timeout, so a file that refused a write is left alone for a while.
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
    log_once(
        LogLevel::warning,
        fmt::format("cannot write to the tuning database {} ({}){}: new results are kept in memory, and the "
                    "file is tried again every {} s",
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
      // A damaged file can have been set aside after the look before: then this is in the wrong one.
      if (use == Use::read || !moved() || successors == most_successors) return;
    } catch (const SQLite::Exception& error) {
      // It is read without locks where it has no log, and can have been changed meanwhile.
      if (read_only && moved() && successors < most_successors) continue;
      const std::string damage = mends && persistent ? damage_behind(error) : "";
      if (damage.empty() || successors == most_successors) throw;
      mend(damage);
    }
  }
}

}  // namespace ce::cache
