#include "cache/key_rows.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <tuple>
#include <utility>

#include "cache/measurement_row.hpp"
#include "cache/possible.hpp"

namespace ce::cache {

std::string_view Texts::keep(std::string_view text) {
  constexpr std::size_t usual = std::size_t{1} << 16;
  if (text.empty()) return {};
  if (text.size() > room_) {
    room_ = std::max(usual, text.size());
    next_ = parts_.emplace_back(new char[room_]).get();
  }
  char* const kept = next_;
  std::memcpy(kept, text.data(), text.size());
  next_ += text.size();
  room_ -= text.size();
  return {kept, text.size()};
}

std::span<const std::byte> Texts::keep(std::span<const std::byte> bytes) {
  const std::string_view kept = keep({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return std::as_bytes(std::span(kept.data(), kept.size()));
}

KeyRows::Environment* KeyRows::environment_of(const Query& row) {
  const std::int64_t id = row.integer(environment_id_column);
  const auto known = environments_.find(id);
  if (known != environments_.end()) return &known->second;
  return &environments_.try_emplace(id, Environment{.text = texts_.keep(row.text_view(environment_column))})
              .first->second;
}

void KeyRows::add(const Query& row, std::int64_t id) {
  Environment* const environment = environment_of(row);
  MeasurementView m = view_of(row, environment->text);
  if (rows_.empty()) {
    problem_ = texts_.keep(m.problem);
    device_ = texts_.keep(m.device);
  }
  m.problem = problem_;
  m.device = device_;
  for (std::string_view* text : {&m.config, &m.template_digest, &m.compile_key, &m.reason, &m.created_at})
    *text = texts_.keep(*text);
  m.outcome = texts_.keep(m.outcome);
  m.samples = texts_.keep(m.samples);
  rows_.push_back({.measurement = m,
                   .identity = texts_.keep(row.text_view(identity_column)),
                   .line = {},
                   .id = id,
                   .environment = environment});
}

void KeyRows::expect_whole(Lines lines) {
  std::string line;
  for (Row& row : rows_) {
    const std::string_view created_at = row.measurement.created_at;
    if (!has_identity(row.measurement, row.identity, line)) refuse_changed(created_at, other_identity);
    if (row.measurement.outcome != name(Outcome::measured) &&
        row.measurement.outcome != name(Outcome::quarantined))
      refuse_changed(created_at, "its outcome is unknown");
    if (lines == Lines::kept) row.line = texts_.keep(line);
    if (row.environment->values) continue;
    try {
      row.environment->values = decode_environment(std::string(row.environment->text));
    } catch (const std::exception& error) {
      refuse_changed(created_at, error.what());
    }
  }
}

void KeyRows::keep_possible() {
  std::erase_if(rows_, [](const Row& row) { return !why_impossible(row.measurement).empty(); });
}

std::vector<Measurement> KeyRows::measurements() const {
  std::vector<Measurement> list;
  list.reserve(rows_.size());
  for (const Row& row : rows_)
    list.push_back(measurement_of(row.measurement, row.environment->values.value()));
  return list;
}

void KeyRows::sort() {
  std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
    return std::tie(a.measurement.created_at, a.id) < std::tie(b.measurement.created_at, b.id);
  });
}

}  // namespace ce::cache
