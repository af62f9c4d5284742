#pragma once
/// \file
/// The database: every measurement ever made, in SQLite. It knows keys and texts, but nothing of CUDA.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/measurement.hpp"
#include "cache/tuning_lock.hpp"

namespace ce::cache {

/// The status of a database, for `doctor`.
struct Status {
  std::filesystem::path path;  ///< empty for a database in memory
  bool persistent = false;     ///< false: its contents are lost with the process, and `problem` says why
  std::string problem;
  int schema_version = 0;
  std::string journal_mode;
  std::int64_t file_bytes = 0;
  std::int64_t measurements = 0;
  std::int64_t keys = 0;
  std::int64_t binaries = 0;
};

struct Layer;

/// A tuning database. Thread-safe, and safe for several processes at once: one connection guarded by a mutex. A child
/// of fork() must not use its parent's; it opens its own.
///
/// No database problem stops a computation: open() falls back to a database in memory and says so once through
/// ce::log_once, and a write that fails later is reported once and otherwise ignored. A read-only file is served from a
/// copy in memory. Writes that a file refused are kept in memory, served from there, and written as soon as the file
/// accepts them.
class Cache {
 public:
  /// \param path  the file; created (0600) with its folders (0700) when missing
  [[nodiscard]] static Cache open(const std::filesystem::path& path);
  /// For commands that must read a given database: \throws DatabaseError if open() would fall back, NotFound if there
  /// is no file, or one without tables. Reads throw DatabaseError, too, if a part of the database cannot be read.
  [[nodiscard]] static Cache open_existing(const std::filesystem::path& path);
  [[nodiscard]] static Cache in_memory();
  /// Adds the layers of lower() below a Cache.
  [[nodiscard]] static Cache with_layers(Cache cache);
  [[nodiscard]] static Cache open_layered(const std::filesystem::path& path) {
    return with_layers(open(path));
  }
  /// Opens another user's database, read-only; measurements that are impossible are left out (see possible.hpp).
  /// \throws as open_existing()
  [[nodiscard]] static Cache open_to_read(const std::filesystem::path& path);
  /// Like open_to_read(), for commands that must read it: unreadable parts are errors, as for open_existing().
  [[nodiscard]] static Cache read_existing(const std::filesystem::path& path);
  /// The contents of a bundle, in memory. Its compiled kernels are included only if no other user can have written the
  /// file, or if its signature was verified. \throws as read_bundle_file()
  [[nodiscard]] static Cache of_bundle(const std::filesystem::path& path);
  /// The measurements of an export, in memory (see Maintenance).
  /// \param name  of the export, for messages
  /// \throws InvalidArgument naming the line if it is not an export
  [[nodiscard]] static Cache of_export(std::string_view lines, const std::string& name);
  /// CE_DB, else $XDG_DATA_HOME/ce/ce.db, else $HOME/.local/share/ce/ce.db; empty when none is set.
  [[nodiscard]] static std::filesystem::path default_path();

  Cache(Cache&&) noexcept;
  Cache& operator=(Cache&&) noexcept;
  ~Cache();

  /// Databases to ask if this one has no answer, the nearest first; opened at first use. None unless opened by
  /// with_layers().
  [[nodiscard]] std::span<const Layer> lower() const;

  [[nodiscard]] Status status() const;

  /// Writes what the file has refused so far. While another process locks the file, which is logged once, it tries
  /// again for as long as `patience`; add() and the destructor never wait like that. Writes that the file still refuses
  /// stay in memory, and status() says so.
  void flush(std::chrono::seconds patience) const;

  /// Copies committed data from the log beside the file into the file, so that a copy of the file alone is complete.
  /// Called at the end of a search, and of a program that never closes its database; does nothing if nothing was
  /// written.
  void checkpoint() const noexcept;

  /// Commits one measurement. One that is there already, with equal time and samples, is not added again.
  void add(const Measurement& measurement) { add(std::span(&measurement, 1)); }
  /// Commits all of them at once: a reader sees all or none. Those without a time get the same time: medians of finals
  /// may be compared with each other within one such call only.
  void add(std::span<const Measurement> measurements);
  /// Every measurement for the key, oldest first.
  [[nodiscard]] std::vector<Measurement> measurements(const Key& key) const;
  /// The measurements without screenings, if there are finals: enough to tell how fast winners were and are, and a
  /// small part of most databases.
  [[nodiscard]] std::vector<Measurement> history(const Key& key) const;
  /// The identities of the key's measurements, which are the same in every database; see identity_of().
  [[nodiscard]] std::vector<std::string> identities(const Key& key) const;
  /// The final that `choose` picks, complete. It chooses among the key's configs that have a final with templates of
  /// one of these digests and were not quarantined since. The cost does not depend on the key's other measurements. The
  /// choice uses figures from the index; only the returned measurement is checked.
  /// \returns nothing if there is none, or while a file refuses new data: measurements() is then more complete
  [[nodiscard]] std::optional<Measurement> final_of(const Key& key, std::span<const std::string> digests,
                                                    const ChooseFinalist& choose) const;
  /// Whether the key has a measurement with templates of one of these digests; an index answers that. True while a file
  /// refuses new data.
  [[nodiscard]] bool has(const Key& key, std::span<const std::string> digests) const;
  /// All keys, by device and then by problem.
  [[nodiscard]] std::vector<KeySummary> keys() const;
  /// Keys whose id() begins with `prefix`.
  [[nodiscard]] std::vector<Key> find(std::string_view prefix) const;

  /// The pin of the key; nothing if there is none. Layers below are not asked.
  [[nodiscard]] std::optional<Pin> pin(const Key& key) const;

  /// Stores a binary under its compile key; the first one stays.
  void keep_binary(std::string_view compile_key, std::span<const std::byte> image, const BinaryInfo& info);
  /// The binary, or nothing if there is none or its digest does not match its bytes. Layers below are asked, too.
  /// Binaries are only read from files that no other user than root can have written; otherwise binaries are kept in
  /// this process.
  [[nodiscard]] std::optional<std::vector<std::byte>> binary(std::string_view compile_key) const;

  /// The compile keys of binaries that no measurement names: kernels that are not searched for, such as those of a
  /// linear layer. Layers below are not asked.
  [[nodiscard]] std::vector<std::string> unnamed_binaries() const;

  /// Notes that the machine ran these kernels, given by their compile keys, and found them right.
  void keep_verified(std::span<const std::string> compile_keys, const std::string& machine);
  /// Whether that was noted. Layers below are not asked, nor files that other users than root can have written: for
  /// those the notes are kept in this process.
  [[nodiscard]] bool is_verified(const std::string& compile_key, const std::string& machine) const;

  /// The right to tune the key, so that processes that need it at the same time tune it once. Never waits. Ask for it
  /// only while holding no other tuning lock, and ask the database again once it is held. If the database is not a
  /// writable file, or its file system has no locks, the lock keeps no other process out.
  /// \returns nothing while another process, or another Cache of this process, holds it
  [[nodiscard]] std::optional<TuningLock> try_tuning_lock(const Key& key) const;

 private:
  struct Impl;
  explicit Cache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ce::cache
