#pragma once
/// \file
/// One SQLite connection whose interface is measurements and binaries instead of SQL.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/bulk_insert.hpp"
#include "cache/codec.hpp"
#include "cache/key_rows.hpp"
#include "cache/measurement.hpp"

namespace SQLite {
class Database;
class Statement;
}  // namespace SQLite

namespace ce::cache {

/// Not thread-safe: its owner locks it. Every method throws SQLite::Exception if SQLite reports an error, and then
/// leaves the database as it was.
class Store {
 public:
  struct Counts {
    std::int64_t measurements = 0, binaries = 0;
  };

  /// \param database  has the current schema; throws if its tables do not match that schema
  explicit Store(std::unique_ptr<SQLite::Database> database);
  [[nodiscard]] static std::unique_ptr<Store> in_memory();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store();

  /// \throws SQLite::Exception(SQLITE_CORRUPT) if keys() lacks a key that has measurements
  void expect_all_listed();
  /// The rows of a key, not compared with their identities yet.
  [[nodiscard]] KeyRows rows(const Key& key);
  /// The rows without screenings, if there are finals.
  [[nodiscard]] KeyRows history(const Key& key);
  /// The identities of all measurements of the key.
  [[nodiscard]] std::vector<std::string> identities(const Key& key);
  [[nodiscard]] std::optional<Measurement> final_of(const Key& key, std::span<const std::string> digests,
                                                    const ChooseFinalist& choose);
  [[nodiscard]] bool has(const Key& key, std::span<const std::string> digests);
  [[nodiscard]] std::vector<KeySummary> keys();
  [[nodiscard]] std::vector<Key> find(std::string_view prefix);

  /// Does nothing if an intact binary is there; replaces a damaged one.
  void keep_binary(const std::string& compile_key, std::span<const std::byte> image, const BinaryInfo& info);
  [[nodiscard]] std::optional<std::vector<std::byte>> binary(const std::string& compile_key);
  /// The compile keys of binaries that no measurement names: kernels that are not searched for.
  [[nodiscard]] std::vector<std::string> unnamed_binaries();
  /// Stores the pin, unless there is a later one for its key. \returns whether it did
  bool pin(const Pin& pin);
  /// The pin that counts; nothing if there is none.
  [[nodiscard]] std::optional<Pin> pin_of(const Key& key);
  /// All pins, including removed ones, by device and then by problem.
  [[nodiscard]] std::vector<Pin> pins();
  void keep_verified(std::span<const std::string> compile_keys, const std::string& machine);
  [[nodiscard]] bool is_verified(const std::string& compile_key, const std::string& machine);

  /// Adds measurements in one transaction, except those that are there already. \returns how many were new
  std::int64_t add(std::span<const Measurement> list);
  /// Adds all measurements that `source` passes; none if it throws. For a million of them, see Triggers::off.
  using AddOne = std::function<void(const MeasurementView&, std::string_view identity)>;
  using Source = std::function<void(const AddOne& add)>;
  std::int64_t add(const Source& source);

  struct Copied {
    std::int64_t measurements = 0, binaries = 0;  ///< number that the other store did not have
  };
  /// Throws for a measurement that must not be added. Called on several threads at once.
  /// \param number  index of the other store that has it
  using CheckOne = std::function<void(std::size_t number, const MeasurementView&)>;
  /// Ends the filling of a store of open_draft(): from now on it is a normal database.
  void end_draft();
  /// Adds all measurements of other stores, and their intact binaries, in one transaction. Each measurement is compared
  /// with its identity; each other store is read in one transaction.
  /// \param triggers  off for up to a million measurements: threads then read ahead
  /// \returns how many measurements and binaries of each store were new
  /// \throws NotReadable if reading one of the others fails, and the errors of `check`
  std::vector<Copied> merge(std::span<Store* const> others, bool with_binaries, Triggers triggers,
                            const CheckOne& check = {});

  struct Pruned {
    std::int64_t measurements = 0, binaries = 0;
  };
  /// Removes measurements made with templates that later ones of the same key and variant have replaced, but keeps
  /// finals, the fastest of each key and templates, and the last `keep` of each key. Removes binaries that no
  /// measurement with the latest templates names.
  /// \param rehearse  only counts, while others may write
  Pruned prune(std::int64_t keep, bool rehearse);

  enum class Depth : std::uint8_t {
    schema,  ///< the SQL of tables, indexes and triggers
    pages,   ///< also every page: a second a gigabyte
    full,    ///< also whether indexes and counts match their tables: ten times as long
  };
  /// The depth of the examination before the first write to a file of that size.
  [[nodiscard]] static Depth usual_depth(std::int64_t bytes) noexcept;
  /// Checks that the file still has this version's schema. \throws as require_ours()
  void expect_ours(const std::filesystem::path& path);
  /// The first damage; empty if there is none. \throws SQLite::Exception if a page cannot be read
  [[nodiscard]] std::string first_damage(Depth depth);
  /// The damage, one line each: pages, tables, references, binaries, and measurements that do not match their
  /// identities.
  [[nodiscard]] std::vector<std::string> damages();
  /// The beginning of damages()' lines about binaries.
  static constexpr std::string_view damaged_binary = "binaries: the digest of ";
  /// Removes binaries that do not match their digests: they are compiled again when needed.
  /// \returns how many
  std::int64_t remove_damaged_binaries();

  /// Returns unused space to the file system.
  void vacuum();
  /// Copies the write-ahead log into the file as far as readers allow, without waiting. Never fails: in doubt the log
  /// stays as it was.
  void checkpoint() noexcept;

  [[nodiscard]] Counts counts();
  [[nodiscard]] int schema_version();
  [[nodiscard]] std::string journal_mode();

 private:
  [[nodiscard]] std::string damaged_page(Depth depth);
  [[nodiscard]] std::string damaged_schema();
  /// \throws SQLite::Exception(SQLITE_IOERR) if a part of the file or its log cannot be read
  void expect_all_bytes();
  std::int64_t add(const Source& source, Triggers triggers);
  [[nodiscard]] SQLite::Statement& prepared(std::string_view sql);
  [[nodiscard]] std::vector<Finalist> finalists(std::int64_t key_id, std::span<const std::string> digests);
  [[nodiscard]] std::optional<std::vector<Finalist>> finalists(const std::string& sql, std::int64_t key_id,
                                                               std::span<const std::string> digests,
                                                               std::string_view after);
  [[nodiscard]] bool has_pins();
  bool insert_pin(const Pin& pin);
  /// \throws SQLite::Exception(SQLITE_CORRUPT)
  /// \returns the number of the key's rows
  std::int64_t expect_whole(std::int64_t key_id);
  bool insert_binary(const std::string& compile_key, std::span<const std::byte> image,
                     const BinaryInfo& info);

  std::unique_ptr<SQLite::Database> database_;
  /// Statements by their text. Declared after the database: statements must be destroyed first.
  std::map<std::string, std::unique_ptr<SQLite::Statement>, std::less<>> statements_;
  [[nodiscard]] KeyRows read(const Key& key, const std::string& select);
  const std::string select_of_key_, select_history_, select_row_, next_final_, next_finalist_;
};

}  // namespace ce::cache
