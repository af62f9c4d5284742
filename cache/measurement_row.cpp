#include "cache/measurement_row.hpp"

#include <SQLiteCpp/Exception.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include <exception>
#include <optional>
#include <utility>

#include "cache/codec.hpp"

namespace ce::cache {
namespace {

/// Measurements of one search come one after the other, and had the same.
Environment shared_environment(std::string text) {
  thread_local std::string last_text;
  thread_local Environment last;
  if (text != last_text) {
    last = decode_environment(text);
    last_text = std::move(text);
  }
  return last;
}

constexpr int environment_column = 15, identity_column = 17;

/// Nothing, and why, where it is not what was written.
std::optional<Measurement> read_if_whole(const Query& row, std::string& problem) {
  try {
    Measurement measurement = read_measurement(row);
    if (identity_of(measurement, row.text(environment_column)) == row.text(identity_column))
      return measurement;
    problem = "its digest is another";
  } catch (const SQLite::Exception&) {
    throw;
  } catch (const std::exception& error) {
    problem = error.what();
  }
  return std::nullopt;
}

}  // namespace

std::string measurement_columns(std::string_view problem, std::string_view device) {
  return fmt::format(
      "{}, {}, m.config, m.template_digest, m.compile_key, m.outcome, m.reason, m.stage, m.rows, m.bytes, "
      "m.samples_us, m.median_us, m.spread, m.registers, m.local_bytes, e.json, m.created_at",
      problem, device);
}

Measurement read_measurement(const Query& row) {
  return {.key = {.problem = row.text(0), .device = row.text(1)},
          .config = row.text(2),
          .template_digest = row.text(3),
          .compile_key = row.text(4),
          .outcome = row.text(5) == name(Outcome::measured) ? Outcome::measured : Outcome::quarantined,
          .reason = row.text(6),
          .stage = static_cast<int>(row.integer(7)),
          .rows = row.integer(8),
          .bytes = row.integer(9),
          .samples_us = decode_samples(row.blob(10)),
          .median_us = row.real(11),
          .spread = row.real(12),
          .registers = static_cast<int>(row.integer(13)),
          .local_bytes = static_cast<int>(row.integer(14)),
          .environment = shared_environment(row.text(environment_column)),
          .created_at = row.text(16)};
}

Measurement read_whole_measurement(const Query& row) {
  std::string problem;
  if (auto measurement = read_if_whole(row, problem)) return *std::move(measurement);
  throw SQLite::Exception(
      fmt::format("a measurement of {} is not what was written: {}", row.text(16), problem), SQLITE_CORRUPT);
}

bool is_whole(const Query& row) {
  std::string problem;
  return read_if_whole(row, problem).has_value();
}

}  // namespace ce::cache
