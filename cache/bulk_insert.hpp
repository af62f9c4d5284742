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

/// Whether the database's triggers fire for each row. They make SQLite copy the pages that each row changes, which
/// takes three times as long as writing the row: too long for a whole database. With triggers off, finish() counts
/// instead.
enum class Triggers : bool { off, on };

/// While it lives, which must be longer than the transaction, a connection has the settings for importing a whole
/// database: room for the index of identities, to which rows come in random order, and for sorting an index; and no
/// foreign key checks, since BulkInsert has found the referenced rows itself.
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

/// Adds measurements in the open transaction. Every method throws SQLite::Exception if SQLite reports an error.
///
/// If the table is empty and triggers are off, the indexes are created at the end, one by one: adding each row to each
/// index would take longer than everything else.
class BulkInsert {
 public:
  BulkInsert(SQLite::Database& database, Triggers triggers);
  BulkInsert(const BulkInsert&) = delete;
  BulkInsert& operator=(const BulkInsert&) = delete;
  ~BulkInsert();

  /// \param identity  identity of the measurement
  /// \returns whether it was new
  bool add(const MeasurementView& measurement, std::string_view identity);
  /// Checks that the added measurements can be found, and updates the counts if triggers did not, before the
  /// transaction is committed.
  /// \throws SQLite::Exception(SQLITE_CORRUPT) if not all measurements of a key are found: a damaged page of an index
  /// can put some out of reach
  void finish();

 private:
  /// The hexadecimal digits of a digest as a number.
  struct Identity {
    std::uint64_t high, low;
    bool operator==(const Identity&) const = default;
  };
  struct IdentityHash {
    std::size_t operator()(const Identity& identity) const noexcept { return identity.low; }
  };

  /// The changes of a row of key_counts, and, while indexes are missing, the identities that were added: equal
  /// measurements have equal keys, and the measurements of a key come together.
  struct Count {
    std::int64_t added = 0;
    std::string first_at, last_at;
    std::unordered_set<Identity, IdentityHash> identities;
  };

  /// Drops the indexes if there are no measurements. \returns the statement that adds a measurement
  [[nodiscard]] std::string prepare_measurements();
  [[nodiscard]] bool is_new(std::string_view identity);
  void make_indexes();
  /// Makes the measurement's key the last key.
  void find_key(const MeasurementView& measurement);
  [[nodiscard]] std::int64_t environment_id(std::string_view text);
  [[nodiscard]] bool count(const std::string& created_at);
  [[nodiscard]] std::int64_t id_of_text(SQLite::Statement& insert, SQLite::Statement& select,
                                        const std::string& text);

  SQLite::Database& database_;
  const Triggers triggers_;
  std::vector<std::string> indexes_;  ///< statements that create the dropped indexes
  SQLite::Statement insert_problem_, select_problem_, insert_device_, select_device_, insert_key_,
      select_key_, insert_environment_, select_environment_, insert_measurement_;
  Key last_key_;
  std::int64_t last_key_id_ = 0;  ///< 0: there is none
  Count* last_count_ = nullptr;   ///< the count of the last key
  std::string last_environment_;
  std::int64_t last_environment_id_ = 0;  ///< 0: there is none
  /// Texts of the row that is being added. The members reuse their memory from row to row.
  struct Texts {
    std::string config, template_digest, compile_key, outcome, reason, created_at, identity;
  } texts_;
  std::map<std::int64_t, Count> counts_;  ///< by the key's row id
};

}  // namespace ce::cache
