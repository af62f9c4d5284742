#include "cache/measurement_row.hpp"

#include <SQLiteCpp/Exception.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "cache/codec.hpp"

namespace ce::cache {
namespace {

/// Measurements of one key, in whatever order they come, had one of a few.
Environment shared_environment(std::string_view text) {
  constexpr std::size_t most = 16;
  thread_local std::vector<std::pair<std::string, Environment>> recent;
  thread_local std::size_t next = 0;
  const auto known =
      std::find_if(recent.begin(), recent.end(), [&](const auto& one) { return one.first == text; });
  if (known != recent.end()) return known->second;
  std::pair<std::string, Environment> decoded{text, decode_environment(std::string(text))};
  if (recent.size() < most) return recent.emplace_back(std::move(decoded)).second;
  recent[next] = std::move(decoded);
  return recent[std::exchange(next, (next + 1) % most)].second;
}

/// As long as the row is the present one.
MeasurementView view_of(const Query& row) {
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
          .environment = row.text_view(15),
          .created_at = row.text_view(16)};
}

/// \throws std::exception where the environment is no JSON
Measurement measurement_of(const MeasurementView& view) {
  return {.key = {.problem = std::string(view.problem), .device = std::string(view.device)},
          .config = std::string(view.config),
          .template_digest = std::string(view.template_digest),
          .compile_key = std::string(view.compile_key),
          .outcome = view.outcome == name(Outcome::measured) ? Outcome::measured : Outcome::quarantined,
          .reason = std::string(view.reason),
          .stage = static_cast<int>(view.stage),
          .rows = view.rows,
          .bytes = view.bytes,
          .samples_us = decode_samples(view.samples),
          .median_us = view.median_us,
          .spread = view.spread,
          .registers = static_cast<int>(view.registers),
          .local_bytes = static_cast<int>(view.local_bytes),
          .environment = shared_environment(view.environment),
          .created_at = std::string(view.created_at)};
}

/// Nothing, and why, where it is not what was written.
std::optional<Measurement> read_if_whole(const Query& row, std::string& problem, std::string& line) {
  const MeasurementView view = view_of(row);
  line.clear();
  append_json(line, view);
  if (identity_of_line(line) != row.text_view(identity_column)) {
    problem = "its digest is another";
    return std::nullopt;
  }
  try {
    return measurement_of(view);
  } catch (const std::exception& error) {
    problem = error.what();
    return std::nullopt;
  }
}

}  // namespace

std::string measurement_columns(std::string_view problem, std::string_view device) {
  return fmt::format(
      "{}, {}, m.config, m.template_digest, m.compile_key, m.outcome, m.reason, m.stage, m.rows, m.bytes, "
      "m.samples_us, m.median_us, m.spread, m.registers, m.local_bytes, e.json, m.created_at",
      problem, device);
}

Measurement read_measurement(const Query& row) { return measurement_of(view_of(row)); }

Measurement read_whole_measurement(const Query& row) {
  std::string line;
  return read_whole_measurement(row, line);
}

Measurement read_whole_measurement(const Query& row, std::string& line) {
  std::string problem;
  if (auto measurement = read_if_whole(row, problem, line)) return *std::move(measurement);
  throw SQLite::Exception(
      fmt::format("a measurement of {} is not what was written: {}", row.text(16), problem), SQLITE_CORRUPT);
}

bool is_whole(const Query& row) {
  std::string problem, line;
  return read_if_whole(row, problem, line).has_value();
}

}  // namespace ce::cache
