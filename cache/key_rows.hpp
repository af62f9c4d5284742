#pragma once
/// \file
/// Copied rows of one key's measurements: one thread reads them from the database, another compares them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/codec.hpp"
#include "cache/environment.hpp"
#include "cache/measurement.hpp"
#include "cache/query.hpp"

namespace ce::cache {

/// Owns copies of texts and bytes. They stay at their addresses when this object is moved.
class Texts {
 public:
  [[nodiscard]] std::string_view keep(std::string_view text);
  [[nodiscard]] std::span<const std::byte> keep(std::span<const std::byte> bytes);

 private:
  std::vector<std::unique_ptr<char[]>> parts_;
  std::size_t room_ = 0;  ///< bytes left in the last block
  char* next_ = nullptr;
};

class KeyRows {
 public:
  /// An environment that rows share, by its row id.
  struct Environment {
    std::string_view text;
    std::optional<cache::Environment> values = {};  ///< parsed from the text, once
  };
  struct Row {
    MeasurementView measurement;
    std::string_view identity;
    std::string_view line;  ///< to_json() of the measurement, once computed
    std::int64_t id = 0;
    Environment* environment = nullptr;
  };

  /// Copies a row that begins with measurement_columns() and its identity.
  /// \param id  row id of the measurement
  void add(const Query& row, std::int64_t id);
  enum class Lines : std::uint8_t { forgotten, kept };
  /// \param lines  whether to keep the JSON line of each row
  /// \throws SQLite::Exception with SQLITE_CORRUPT if a row does not match its identity
  void expect_whole(Lines lines = Lines::forgotten);
  /// Sorts the rows: oldest first; equal times by row id.
  void sort();

  /// Removes impossible measurements (see possible.hpp).
  void keep_possible();

  [[nodiscard]] const std::vector<Row>& rows() const noexcept { return rows_; }
  /// The measurements in the order of the rows; call expect_whole() first.
  [[nodiscard]] std::vector<Measurement> measurements() const;

 private:
  [[nodiscard]] Environment* environment_of(const Query& row);

  std::vector<Row> rows_;
  std::unordered_map<std::int64_t, Environment> environments_;
  std::string_view problem_, device_;  ///< texts of the key, for all rows
  Texts texts_;
};

}  // namespace ce::cache
