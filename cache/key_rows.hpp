#pragma once
/// \file
/// The measurements of one key as their rows hold them, away from the database: one thread reads, another one compares.

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

/// Texts and bytes that lie where they are until it goes, also where it is moved.
class Texts {
 public:
  [[nodiscard]] std::string_view keep(std::string_view text);
  [[nodiscard]] std::span<const std::byte> keep(std::span<const std::byte> bytes);

 private:
  std::vector<std::unique_ptr<char[]>> parts_;
  std::size_t room_ = 0;  ///< at the end of the last one
  char* next_ = nullptr;
};

class KeyRows {
 public:
  /// An environment that rows share, by its row.
  struct Environment {
    std::string_view text;
    std::optional<cache::Environment> values = {};  ///< of the text, once it is known to be JSON
  };
  struct Row {
    MeasurementView measurement;
    std::string_view identity;
    std::string_view line;  ///< to_json() of it, once asked for
    std::int64_t id = 0;
    Environment* environment = nullptr;
  };

  /// Copies a row that begins with measurement_columns() and its identity.
  /// \param id  of the row
  void add(const Query& row, std::int64_t id);
  enum class Lines : std::uint8_t { forgotten, kept };
  /// \param lines  which it makes of each row
  /// \throws SQLite::Exception with SQLITE_CORRUPT where one is not what was written
  void expect_whole(Lines lines = Lines::forgotten);
  /// Oldest first; of one moment in the order of their rows.
  void sort();

  /// Leaves out those that cannot be (see possible.hpp).
  void keep_possible();

  [[nodiscard]] const std::vector<Row>& rows() const noexcept { return rows_; }
  /// The measurements in the order of the rows, which expect_whole() has found to be what was written.
  [[nodiscard]] std::vector<Measurement> measurements() const;

 private:
  [[nodiscard]] Environment* environment_of(const Query& row);

  std::vector<Row> rows_;
  std::unordered_map<std::int64_t, Environment> environments_;
  std::string_view problem_, device_;  ///< of all of them
  Texts texts_;
};

}  // namespace ce::cache
