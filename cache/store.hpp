#pragma once
/// \file
/// One SQLite connection that speaks in measurements and binaries instead of SQL.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache.hpp"

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
    std::int64_t measurements = 0, keys = 0, binaries = 0;
  };

  /// \param database  with the current schema; throws where its tables are not those of that schema
  explicit Store(std::unique_ptr<SQLite::Database> database);
  [[nodiscard]] static std::unique_ptr<Store> in_memory();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store();

  void add(const Measurement& measurement);
  /// Oldest first.
  [[nodiscard]] std::vector<Measurement> measurements(const Key& key);
  [[nodiscard]] std::vector<KeySummary> keys();
  [[nodiscard]] std::vector<Key> find(std::string_view prefix);

  /// Does nothing when a whole binary is there; replaces a damaged one.
  void keep_binary(const std::string& compile_key, std::span<const std::byte> image, const BinaryInfo& info);
  [[nodiscard]] std::optional<std::vector<std::byte>> binary(const std::string& compile_key);

  /// Adds all of this store's measurements and binaries to the other one, in one transaction.
  void copy_into(Store& other);

  [[nodiscard]] Counts counts();
  [[nodiscard]] int schema_version();
  [[nodiscard]] std::string journal_mode();

 private:
  [[nodiscard]] SQLite::Statement& prepared(const char* sql);
  void insert(const Measurement& measurement);
  void insert_binary(const std::string& compile_key, std::span<const std::byte> image,
                     const BinaryInfo& info);

  std::unique_ptr<SQLite::Database> database_;
  /// By the text, which is a literal. Declared after the database: statements must go first.
  std::map<std::string_view, std::unique_ptr<SQLite::Statement>> statements_;
};

/// Now, as "2030-01-31T12:00:00.000Z".
[[nodiscard]] std::string utc_now();

}  // namespace ce::cache
