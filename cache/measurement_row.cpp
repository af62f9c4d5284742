#include "cache/measurement_row.hpp"

#include <SQLiteCpp/Exception.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include <cstddef>
#include <exception>
#include <optional>
#include <utility>

#include "cache/codec.hpp"

namespace ce::cache {
namespace {

constexpr int time_column = 16;

/// The measurement of a row; nothing, and the reason in `why`, if it does not match its identity.
std::optional<Measurement> read_if_whole(const Query& row, MetEnvironments& met, std::string& problem,
                                         std::string& line) {
  MetEnvironments::One& environment = met.of(row);
  const MeasurementView view = view_of(row, environment.text());
  if (!has_identity(view, row.text_view(identity_column), line)) {
    problem = other_identity;
    return std::nullopt;
  }
  try {
    return measurement_of(view, environment.values());
  } catch (const std::exception& error) {
    problem = error.what();
    return std::nullopt;
  }
}

}  // namespace

std::string measurement_columns(std::string_view problem, std::string_view device) {
  return fmt::format(
      "{}, {}, m.config, m.template_digest, m.compile_key, m.outcome, m.reason, m.stage, m.rows, m.bytes, "
      "m.samples_us, m.median_us, m.spread, m.registers, m.local_bytes, e.json, m.created_at, "
      "m.environment_id",
      problem, device);
}

const Environment& MetEnvironments::One::values() {
  if (!values_) values_ = decode_environment(text_);
  return *values_;
}

MetEnvironments::One& MetEnvironments::of(const Query& row) {
  constexpr std::size_t most = 1024;
  const std::int64_t id = row.integer(environment_id_column);
  if (const auto known = met_.find(id); known != met_.end()) return known->second;
  if (met_.size() == most) met_.clear();
  return met_.try_emplace(id, row.text(environment_column)).first->second;
}

MeasurementView view_of(const Query& row, std::string_view environment) {
  return {.problem = row.text_view(0),
          .device = row.text_view(1),
          .config = row.text_view(2),
          .template_digest = row.text_view(3),
          .compile_key = row.text_view(4),
          .outcome = row.text_view(5),
          .reason = row.text_view(6),
          .stage = row.integer(7),
          .rows = row.integer(8),
          .bytes = row.integer(9),
          .samples = row.blob_view(10),
          .median_us = row.real(11),
          .spread = row.real(12),
          .registers = row.integer(13),
          .local_bytes = row.integer(14),
          .environment = environment,
          .created_at = row.text_view(time_column)};
}

bool has_identity(const MeasurementView& measurement, std::string_view identity, std::string& line) {
  line.clear();
  append_json(line, measurement);
  return identity_of_line(line) == identity;
}

void refuse_changed(std::string_view created_at, std::string_view problem) {
  throw SQLite::Exception(
      fmt::format("a measurement of {} has changed since it was written: {}", created_at, problem),
      SQLITE_CORRUPT);
}

Measurement read_measurement(const Query& row, MetEnvironments& met) {
  MetEnvironments::One& environment = met.of(row);
  return measurement_of(view_of(row, environment.text()), environment.values());
}

Measurement read_whole_measurement(const Query& row, MetEnvironments& met) {
  std::string line, problem;
  if (auto measurement = read_if_whole(row, met, problem, line)) return *std::move(measurement);
  refuse_changed(row.text_view(time_column), problem);
}

bool is_whole(const Query& row, MetEnvironments& met) {
  std::string problem, line;
  return read_if_whole(row, met, problem, line).has_value();
}

}  // namespace ce::cache
