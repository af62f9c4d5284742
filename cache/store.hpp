#pragma once
/// \file
/// One SQLite connection that speaks in measurements and binaries instead of SQL.

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

/// Not thread-safe: its owner locks. Every method throws SQLite::Exception where SQLite reports an error, and
/// leaves the database as it was before the call.
class Store {
 public:
  struct Counts {
    std::int64_t measurements = 0, binaries = 0;
  };

  /// \param database  with the current schema; throws where its tables are not those of that schema
  explicit Store(std::unique_ptr<SQLite::Database> database);
  [[nodiscard]] static std::unique_ptr<Store> in_memory();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store();

  /// \throws SQLite::Exception(SQLITE_CORRUPT) where keys() lacks a key of measurements
  void expect_all_listed();
  /// The rows of a key, not yet compared with their identities.
  [[nodiscard]] KeyRows rows(const Key& key);
  /// The same without what was only screened, where there are finals.
  [[nodiscard]] KeyRows history(const Key& key);
  /// The identities of all measurements of the key.
  [[nodiscard]] std::vector<std::string> identities(const Key& key);
  [[nodiscard]] std::optional<Measurement> final_of(const Key& key, std::span<const std::string> digests,
                                                    const ChooseFinalist& choose);
  [[nodiscard]] bool has(const Key& key, std::span<const std::string> digests);
  [[nodiscard]] std::vector<KeySummary> keys();
  [[nodiscard]] std::vector<Key> find(std::string_view prefix);

  /// Does nothing when a whole binary is there; replaces a damaged one.
  void keep_binary(const std::string& compile_key, std::span<const std::byte> image, const BinaryInfo& info);
  [[nodiscard]] std::optional<std::vector<std::byte>> binary(const std::string& compile_key);
  /// The compile keys of those that no measurement names: kernels that are not searched for.
  [[nodiscard]] std::vector<std::string> unnamed_binaries();
  /// Keeps the pin, unless a later one of its key is there. \returns whether it does
  bool pin(const Pin& pin);
  /// The pin that counts; nothing where none does.
  [[nodiscard]] std::optional<Pin> pin_of(const Key& key);
  /// All, also those that were taken away, by device and then by problem.
  [[nodiscard]] std::vector<Pin> pins();
  void keep_verified(std::span<const std::string> compile_keys, const std::string& machine);
  [[nodiscard]] bool is_verified(const std::string& compile_key, const std::string& machine);

  /// Adds them in one transaction; what is there already is not added again. \returns how many of them were new
  std::int64_t add(std::span<const Measurement> list);
  /// Adds all that `source` hands over, one after the other; none where it throws. For a million of them, see Triggers::off.
  using AddOne = std::function<void(const MeasurementView&, std::string_view identity)>;
  using Source = std::function<void(const AddOne& add)>;
  std::int64_t add(const Source& source);

  struct Copied {
    std::int64_t measurements = 0, binaries = 0;  ///< that the other store did not have
  };
  /// Throws for a measurement that is not to be taken. Called on several threads at once.
  /// \param number  which of the other stores has it
  using CheckOne = std::function<void(std::size_t number, const MeasurementView&)>;
  /// Ends the filling of a store of open_draft(): from here on it is as others are opened.
  void end_draft();
  /// Adds all of the measurements of other stores, and their binaries that are whole, in one transaction. Each measurement is
  /// compared with its identity; of each other store all is of one moment.
  /// \param triggers  off where it may be a million: threads read these ahead
  /// \returns what of each was new
  /// \throws NotReadable where one of the others is what fails, what `check` throws
  std::vector<Copied> merge(std::span<Store* const> others, bool with_binaries, Triggers triggers,
                            const CheckOne& check = {});

  struct Pruned {
    std::int64_t measurements = 0, binaries = 0;
  };
  /// Takes out measurements made with templates that later ones of the same key and variant have replaced,
  /// but not finals, the fastest of each key and templates, nor the last `keep` of each key; and binaries that
  /// no measurement with the latest templates names.
  /// \param rehearse  only counts, while others may write
  Pruned prune(std::int64_t keep, bool rehearse);

  enum class Depth : std::uint8_t {
    schema,  ///< the texts of tables, indexes and triggers
    pages,   ///< also each page: a second for a gigabyte
    full,    ///< also whether indexes and counts are those of their tables: ten times as long
  };
  /// The depth of an examination before the first write to a file of that size.
  [[nodiscard]] static Depth usual_depth(std::int64_t bytes) noexcept;
  /// The file is still one that this ce can work with. \throws as require_ours()
  void expect_ours(const std::filesystem::path& path);
  /// The first thing that is wrong; empty where nothing is. \throws SQLite::Exception where a page cannot be read
  [[nodiscard]] std::string first_damage(Depth depth);
  /// What is damaged, one line each: pages, tables, references, binaries, measurements that are not as they were
  /// written.
  [[nodiscard]] std::vector<std::string> damages();
  /// What damages() says of a binary begins so.
  static constexpr std::string_view damaged_binary = "binaries: the digest of ";
  /// Takes out the binaries whose bytes have another digest: they are compiled again when they are needed.
  /// \returns how many
  std::int64_t remove_damaged_binaries();

  /// Gives room that nothing uses back to the file system.
  void vacuum();
  /// Copies the write-ahead log into the file as far as readers let it, without waiting for any. Never fails: the log
  /// stays what it was.
  void checkpoint() noexcept;

  [[nodiscard]] Counts counts();
  [[nodiscard]] int schema_version();
  [[nodiscard]] std::string journal_mode();

 private:
  [[nodiscard]] std::string damaged_page(Depth depth);
  [[nodiscard]] std::string damaged_schema();
  /// \throws SQLite::Exception(SQLITE_IOERR) where a part of the file or its log cannot be read
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
  /// \returns how many it has
  std::int64_t expect_whole(std::int64_t key_id);
  bool insert_binary(const std::string& compile_key, std::span<const std::byte> image,
                     const BinaryInfo& info);

  std::unique_ptr<SQLite::Database> database_;
  /// Statements by their text. Declared after the database: statements must go first.
  std::map<std::string, std::unique_ptr<SQLite::Statement>, std::less<>> statements_;
  [[nodiscard]] KeyRows read(const Key& key, const std::string& select);
  const std::string select_of_key_, select_history_, select_row_, next_final_, next_finalist_;
};

}  // namespace ce::cache
