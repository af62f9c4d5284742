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

/// What a measurement says, in the order of read_measurement(), of the tables problems AS p, device_models AS d,
/// measurements AS m and environments AS e.
/// \param problem, device  where the texts of the key come from
[[nodiscard]] std::string measurement_columns(std::string_view problem = "p.text",
                                              std::string_view device = "d.text");

/// Where in there the environment stands, and the number of its row.
inline constexpr int environment_column = 15, environment_id_column = 17;
/// Where the identity stands: behind those.
inline constexpr int identity_column = 18;

/// The tables of these columns, joined, with keys AS k.
inline constexpr std::string_view measurement_tables = R"sql(
  measurements AS m
  JOIN keys AS k ON k.id = m.key_id
  JOIN problems AS p ON p.id = k.problem_id
  JOIN device_models AS d ON d.id = k.device_model_id
  JOIN environments AS e ON e.id = m.environment_id)sql";

/// Environments that were met in a database, by their row: measurements of one key share a few. For as long as no
/// writer can change the database, as during one query.
class MetEnvironments {
 public:
  class One {
   public:
    explicit One(std::string text) : text_(std::move(text)) {}
    /// The text as the row has it.
    [[nodiscard]] const std::string& text() const noexcept { return text_; }
    /// \throws std::exception where the text is no JSON
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

/// The measurement of a row that begins with measurement_columns(), as long as it is the present one.
[[nodiscard]] MeasurementView view_of(const Query& row, std::string_view environment);

/// Whether a measurement is what was written. \param line  becomes to_json() of it
[[nodiscard]] bool has_identity(const MeasurementView& measurement, std::string_view identity,
                                std::string& line);
/// Why it is not, then.
inline constexpr std::string_view other_identity = "its digest is another";
/// \throws SQLite::Exception with SQLITE_CORRUPT
[[noreturn]] void refuse_changed(std::string_view created_at, std::string_view problem);

/// The measurement of a row that begins with measurement_columns().
/// \throws std::exception where the environment is no JSON
[[nodiscard]] Measurement read_measurement(const Query& row, MetEnvironments& met);

/// The same with its identity in identity_column.
/// \throws SQLite::Exception with SQLITE_CORRUPT where it is not what was written
[[nodiscard]] Measurement read_whole_measurement(const Query& row, MetEnvironments& met);

/// Whether read_whole_measurement() would return.
[[nodiscard]] bool is_whole(const Query& row, MetEnvironments& met);

}  // namespace ce::cache
