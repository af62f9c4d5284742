#pragma once
/// \file
/// The record: every measurement ever made, in SQLite. It knows keys and texts, and nothing of CUDA.

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

/// What `doctor` says of a database.
struct Status {
  std::filesystem::path path;  ///< empty for a database in memory
  bool persistent = false;     ///< false: nothing outlives the process, and `problem` says why
  std::string problem;
  int schema_version = 0;
  std::string journal_mode;
  std::int64_t file_bytes = 0;
  std::int64_t measurements = 0;
  std::int64_t keys = 0;
  std::int64_t binaries = 0;
};

struct Layer;

/// A tuning database. Safe to use from several threads and processes at once: one connection guarded by a
/// mutex. A child of fork() must not use its parent's; it opens its own.
///
/// No database problem stops a computation: open() falls back to a database in memory and says so once
/// through ce::log_once, and a write that fails later is reported once and otherwise ignored. A file that can
/// only be read is served from a copy in memory. What a file refused is kept in memory, served from there,
/// and written as soon as the file takes it again.
class Cache {
 public:
  /// \param path  the file; created (0600) with its folders (0700) when missing
  [[nodiscard]] static Cache open(const std::filesystem::path& path);
  /// For commands that were told to read a given database: \throws DatabaseError where open() would degrade,
  /// NotFound where there is no file, or one without tables. What reads it throws DatabaseError too, where a part of it
  /// cannot be read.
  [[nodiscard]] static Cache open_existing(const std::filesystem::path& path);
  [[nodiscard]] static Cache in_memory();
  /// The same with the layers of lower() behind it.
  [[nodiscard]] static Cache with_layers(Cache cache);
  [[nodiscard]] static Cache open_layered(const std::filesystem::path& path) {
    return with_layers(open(path));
  }
  /// A database of others, read where it lies; without what cannot be (see possible.hpp). \throws as open_existing()
  [[nodiscard]] static Cache open_to_read(const std::filesystem::path& path);
  /// The same for commands that were told to read it: what cannot be read is an error, as of open_existing().
  [[nodiscard]] static Cache read_existing(const std::filesystem::path& path);
  /// What a bundle says, in memory; its compiled kernels only where no other user can have written the file, or its
  /// signature was verified. \throws as read_bundle_file()
  [[nodiscard]] static Cache of_bundle(const std::filesystem::path& path);
  /// The measurements of an export, in memory (see Maintenance). \throws InvalidArgument where it is none
  [[nodiscard]] static Cache of_export(std::string_view lines);
  /// CE_DB, else $XDG_DATA_HOME/ce/ce.db, else $HOME/.local/share/ce/ce.db; empty when none is set.
  [[nodiscard]] static std::filesystem::path default_path();

  Cache(Cache&&) noexcept;
  Cache& operator=(Cache&&) noexcept;
  ~Cache();

  /// Databases to ask where this one knows nothing, the nearest first; opened when they are asked for first. None
  /// unless by with_layers().
  [[nodiscard]] std::span<const Layer> lower() const;

  [[nodiscard]] Status status() const;

  /// Writes what the file has refused so far. While another process has it locked, which is said once, tries again for as
  /// long as `patience`; add() and the destructor never wait like that. What the file still refuses stays in memory, and
  /// status() says so.
  void flush(std::chrono::seconds patience) const;

  /// Copies what was committed from the log beside the file into the file, so that a copy of the file alone has it,
  /// too. For the end of a search and of a program that never closes its database; nothing where nothing was written.
  void checkpoint() const noexcept;

  /// Commits one measurement. One that is there already, with the same time and samples, is not added again.
  void add(const Measurement& measurement) { add(std::span(&measurement, 1)); }
  /// Commits all of them at once: a reader sees all or none. Those without a time get the same: medians of finals may
  /// be held against each other within one such call, and nowhere else.
  void add(std::span<const Measurement> measurements);
  /// Every measurement for the key, oldest first.
  [[nodiscard]] std::vector<Measurement> measurements(const Key& key) const;
  /// The same without what was only screened, where there are finals: what tells how fast winners were and are, which is
  /// a part of most databases.
  [[nodiscard]] std::vector<Measurement> history(const Key& key) const;
  /// What tells the key's measurements apart, here and in other databases; see identity_of().
  [[nodiscard]] std::vector<std::string> identities(const Key& key) const;
  /// The final that `choose` picks, in full. It chooses among those of the key's configs that have a final with templates
  /// of one of these digests and were not quarantined since: what decides, at a cost that depends on nothing else that
  /// is known of the key. Their figures are as the index has them; only what is returned is checked.
  /// \returns nothing where there is none, and while a file refuses what is new: then measurements() knows more
  [[nodiscard]] std::optional<Measurement> final_of(const Key& key, std::span<const std::string> digests,
                                                    const ChooseFinalist& choose) const;
  /// Whether anything was measured for the key with templates of one of these digests: asked of an index. True while a
  /// file refuses what is new.
  [[nodiscard]] bool has(const Key& key, std::span<const std::string> digests) const;
  /// All keys, by device and then by problem.
  [[nodiscard]] std::vector<KeySummary> keys() const;
  /// Keys whose id() begins with `prefix`.
  [[nodiscard]] std::vector<Key> find(std::string_view prefix) const;

  /// What a person decided for the key; nothing where no one did. Layers below are not asked.
  [[nodiscard]] std::optional<Pin> pin(const Key& key) const;

  /// Keeps a binary under its compile key; the first one stays.
  void keep_binary(std::string_view compile_key, std::span<const std::byte> image, const BinaryInfo& info);
  /// The binary, or nothing when there is none or its digest does not match its bytes. Layers below are asked, too. Code
  /// is taken only from files that only this user and root can have written, and what is kept for another stays in
  /// this process.
  [[nodiscard]] std::optional<std::vector<std::byte>> binary(std::string_view compile_key) const;

  /// The compile keys of binaries that no measurement names: kernels that are not searched for, such as those of a linear
  /// layer. Layers below are not asked.
  [[nodiscard]] std::vector<std::string> unnamed_binaries() const;

  /// Notes that the machine ran these kernels, by their compile keys, and found them right.
  void keep_verified(std::span<const std::string> compile_keys, const std::string& machine);
  /// Whether that was noted. Layers below are not asked, nor files that others than this user and root can have written:
  /// for those it is noted in this process.
  [[nodiscard]] bool is_verified(const std::string& compile_key, const std::string& machine) const;

  /// The right to tune the key, so that processes that meet it at once tune it once. Never waits. To be asked
  /// for while no other tuning lock is held, and the database to be asked again once it is there. Where the
  /// database is no file that can be written, or its file system has no locks, it keeps no other process out.
  /// \returns nothing while another process, or another Cache of this one, has it
  [[nodiscard]] std::optional<TuningLock> try_tuning_lock(const Key& key) const;

 private:
  struct Impl;
  explicit Cache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ce::cache
