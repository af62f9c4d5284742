#pragma once
/// \file
/// Measurements, a few or a million, in one transaction.

#include <SQLiteCpp/Statement.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "cache/codec.hpp"
#include "cache/measurement.hpp"

namespace SQLite {
class Database;
}

namespace ce::cache {

/// Whether the triggers of the database fire for each row. They make SQLite keep a copy of the pages that each row changes,
/// which takes three times as long as to write it: too long for a whole database. Where they are off, finish() counts.
enum class Triggers : bool { off, on };

/// While it lives, and that is longer than the transaction, a connection is as a whole database needs it: with room for the
/// index of identities, to which rows come in no order, or to sort what an index is made of; and without a look for what
/// each row refers to, which BulkInsert has found itself.
class BulkSettings {
 public:
  explicit BulkSettings(SQLite::Database& database);
  BulkSettings(const BulkSettings&) = delete;
  BulkSettings& operator=(const BulkSettings&) = delete;
  ~BulkSettings();

 private:
  SQLite::Database& database_;
  const int cache_size_, foreign_keys_;
};

/// Adds measurements in the transaction that is open. Every method throws SQLite::Exception where SQLite reports an error.
///
/// Where there are none yet, and triggers are off, indexes are made at the end, each at once: to add each row to each of
/// them takes longer than all else.
class BulkInsert {
 public:
  BulkInsert(SQLite::Database& database, Triggers triggers);
  BulkInsert(const BulkInsert&) = delete;
  BulkInsert& operator=(const BulkInsert&) = delete;
  ~BulkInsert();

  /// \param identity  of the measurement
  /// \returns whether it was new
  bool add(const MeasurementView& measurement, std::string_view identity);
  /// Looks for what was added, and counts it where no trigger did, before the transaction is committed.
  /// \throws SQLite::Exception(SQLITE_CORRUPT) where not all measurements of a key are found: where a page of an index
  /// is damaged, some can be out of reach
  void finish();

 private:
  /// The digits of a digest as a number.
  struct Identity {
    std::uint64_t high, low;
    bool operator==(const Identity&) const = default;
  };
  struct IdentityHash {
    std::size_t operator()(const Identity& identity) const noexcept { return identity.low; }
  };

  /// What changes in a row of key_counts, and what was added meanwhile, while indexes are out: equal measurements are of
  /// one key, and those of a key come together.
  struct Count {
    std::int64_t added = 0;
    std::string first_at, last_at;
    std::unordered_set<Identity, IdentityHash> identities;
  };

  /// Takes the indexes out where there are no measurements. \returns what adds one
  [[nodiscard]] std::string prepare_measurements();
  [[nodiscard]] bool is_new(std::string_view identity);
  void make_indexes();
  /// Makes the key of the measurement the last one.
  void find_key(const MeasurementView& measurement);
  [[nodiscard]] std::int64_t environment_id(std::string_view text);
  [[nodiscard]] bool count(const std::string& created_at);
  [[nodiscard]] std::int64_t id_of_text(SQLite::Statement& insert, SQLite::Statement& select,
                                        const std::string& text);

  SQLite::Database& database_;
  const Triggers triggers_;
  std::vector<std::string> indexes_;  ///< what makes those that are out until the end
  SQLite::Statement insert_problem_, select_problem_, insert_device_, select_device_, insert_key_,
      select_key_, insert_environment_, select_environment_, insert_measurement_;
  Key last_key_;
  std::int64_t last_key_id_ = 0;  ///< 0 for none
  Count* last_count_ = nullptr;   ///< of the last key
  std::string last_environment_;
  std::int64_t last_environment_id_ = 0;  ///< 0 for none
  /// Texts of the row that is added: their memory is that of the rows before.
  struct Texts {
    std::string config, template_digest, compile_key, outcome, reason, created_at, identity;
  } texts_;
  std::map<std::int64_t, Count> counts_;  ///< by the key's number
};

}  // namespace ce::cache
