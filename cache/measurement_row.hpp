#pragma once
/// \file
/// One measurement in the columns of a query.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "cache/codec.hpp"
#include "cache/measurement.hpp"
#include "cache/query.hpp"

namespace ce::cache {

/// The columns of a measurement, in the order of read_measurement(), from the tables problems AS p, device_models AS d,
/// measurements AS m and environments AS e.
/// \param problem, device  expressions for the texts of the key
[[nodiscard]] std::string measurement_columns(std::string_view problem = "p.text",
                                              std::string_view device = "d.text");

/// Columns of the environment's text and its row id.
inline constexpr int environment_column = 15, environment_id_column = 17;
/// Column of the identity, behind the others.
inline constexpr int identity_column = 18;

/// The tables of these columns, joined, including keys AS k.
inline constexpr std::string_view measurement_tables = R"sql(
  measurements AS m
  JOIN keys AS k ON k.id = m.key_id
  JOIN problems AS p ON p.id = k.problem_id
  JOIN device_models AS d ON d.id = k.device_model_id
  JOIN environments AS e ON e.id = m.environment_id)sql";

/// Environments that were read from a database, by their row ids: measurements of one key share a few. Valid as long as
/// no writer can change the database, for example during one query.
class MetEnvironments {
 public:
  class One {
   public:
    explicit One(std::string text) : text_(std::move(text)) {}
    /// The environment's text in the row.
    [[nodiscard]] const std::string& text() const noexcept { return text_; }
    /// \throws std::exception if the text is not JSON
    [[nodiscard]] const Environment& values();

   private:
    std::string text_;
    std::optional<Environment> values_;
  };
  /// The environment of a row that begins with measurement_columns(). Valid until the next call.
  [[nodiscard]] One& of(const Query& row);

 private:
  std::unordered_map<std::int64_t, One> met_;
};

/// A view of the measurement in a row that begins with measurement_columns(); valid while the row is the current one.
[[nodiscard]] MeasurementView view_of(const Query& row, std::string_view environment);

/// Whether a measurement matches its identity. \param line  receives to_json() of it
[[nodiscard]] bool has_identity(const MeasurementView& measurement, std::string_view identity,
                                std::string& line);
/// Why it does not match, as an error.
inline constexpr std::string_view other_identity = "its digest does not match";
/// \throws SQLite::Exception with SQLITE_CORRUPT
[[noreturn]] void refuse_changed(std::string_view created_at, std::string_view problem);

/// The measurement of a row that begins with measurement_columns().
/// \throws std::exception if the environment is not JSON
[[nodiscard]] Measurement read_measurement(const Query& row, MetEnvironments& met);

/// The measurement, compared with its identity in identity_column.
/// \throws SQLite::Exception with SQLITE_CORRUPT if they do not match
[[nodiscard]] Measurement read_whole_measurement(const Query& row, MetEnvironments& met);

/// Whether read_whole_measurement() would succeed.
[[nodiscard]] bool is_whole(const Query& row, MetEnvironments& met);

}  // namespace ce::cache
