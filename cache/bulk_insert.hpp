#pragma once
/// \file
/// Measurements, a few or a million, in one transaction.

#include <SQLiteCpp/Statement.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "cache/measurement.hpp"
#include "cache/measurement_row.hpp"
#include "cache/query.hpp"

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
  bool add(const Measurement& measurement, const std::string& identity);
  /// A row of another database that begins with measurement_columns() and its identity, as it is: it must be known to be
  /// whole.
  /// \param met  in that database
  /// \returns whether it was new
  bool copy(const Query& row, MetEnvironments& met, const Key& of);
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

  /// What changes in a row of key_counts.
  struct Count {
    std::int64_t added = 0;
    std::string first_at, last_at;
  };

  /// Takes the indexes out where there are no measurements. \returns what adds one
  [[nodiscard]] std::string prepare_measurements();
  [[nodiscard]] bool is_new(const std::string& identity);
  [[nodiscard]] std::int64_t key_id(const Key& key);
  [[nodiscard]] std::int64_t environment_id(const Environment& environment);
  [[nodiscard]] std::int64_t environment_id_of(const std::string& text);
  [[nodiscard]] bool count(std::int64_t key, const std::string& created_at);
  [[nodiscard]] std::int64_t id_of_text(SQLite::Statement& insert, SQLite::Statement& select,
                                        const std::string& text);

  SQLite::Database& database_;
  const Triggers triggers_;
  std::vector<std::string> indexes_;  ///< what makes those that are out until the end
  /// Of what was added, while they are.
  std::unordered_set<Identity, IdentityHash> identities_;
  SQLite::Statement insert_problem_, select_problem_, insert_device_, select_device_, insert_key_,
      select_key_, insert_environment_, select_environment_, insert_measurement_;
  Key last_key_;
  Environment last_environment_;
  std::map<std::string, std::int64_t, std::less<>> environment_ids_;  ///< by their texts, of copy()
  /// Of the row that copy() is at: their memory is that of the rows before.
  struct Texts {
    std::string config, template_digest, compile_key, outcome, reason, created_at, identity;
  } texts_;
  std::int64_t last_key_id_ = 0, last_environment_id_ = 0;  ///< 0 for none
  std::map<std::int64_t, Count> counts_;                    ///< by the key's number
};

}  // namespace ce::cache
