#include "cache/possible.hpp"

#include <fmt/format.h>

#include <cmath>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

#include "cache/codec.hpp"
#include "ce/error.hpp"

namespace ce::cache {
namespace {

constexpr double least_us = 1e-3, most_us = 1e10;  // a nanosecond, and three hours
constexpr double most_spread = 1e9;
constexpr std::int64_t most_rows = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t most_bytes = std::int64_t{1} << 50;
constexpr std::int64_t most_registers = 1024;
constexpr std::int64_t most_local_bytes = std::int64_t{1} << 24;
constexpr std::size_t most_samples = 1'000'000;
constexpr std::size_t longest_text = 4096, longest_reason = std::size_t{8} << 20;

bool is_possible_time(double us) { return least_us <= us && us <= most_us; }

/// \param expected  a text, or a function that makes one when needed: nearly every value is valid
template <class Value, class Expected>
void expect(bool holds, std::string_view field, const Value& value, const Expected& expected) {
  if (holds) return;
  if constexpr (std::invocable<Expected>)
    throw InvalidArgument(field, fmt::format("{}", value), expected());
  else
    throw InvalidArgument(field, fmt::format("{}", value), expected);
}

template <std::integral Integer>
void expect_within(std::string_view field, Integer value, std::int64_t least, std::int64_t most) {
  expect(least <= value && value <= most, field, value, [&] { return fmt::format("{} to {}", least, most); });
}

void expect_text(std::string_view field, std::string_view text, std::size_t longest) {
  if (text.size() > longest)
    throw InvalidArgument(field, fmt::format("{} bytes long", text.size()),
                          fmt::format("{} at most", longest));
}

void expect_name(std::string_view field, std::string_view text) {
  expect(!text.empty(), field, "empty", "a text");
  expect_text(field, text, longest_text);
}

std::string times() { return fmt::format("{} to {} us", least_us, most_us); }

void expect_figures(const MeasurementView& m) {
  const bool measured = m.outcome == name(Outcome::measured);
  // SQLite has no negative zero.
  const auto is_zero = [](double value) { return value == 0 && !std::signbit(value); };
  expect(is_possible_time(m.median_us) || (!measured && (is_zero(m.median_us) || std::isnan(m.median_us))),
         "median_us", m.median_us, [&] { return measured ? times() : "0, or " + times(); });
  expect(std::isnan(m.spread) || is_zero(m.spread) || (0 < m.spread && m.spread <= most_spread), "spread",
         m.spread, [] { return fmt::format("0 to {}, or null", most_spread); });
  const std::size_t count = count_of_samples(m.samples);
  if ((measured && count == 0) || count > most_samples)
    throw InvalidArgument("samples_us", fmt::format("{} samples long", count),
                          fmt::format("{} to {}", measured ? 1 : 0, most_samples));
  for (std::size_t i = 0; i < count; ++i) {
    const float sample = sample_at(m.samples, i);
    expect(is_possible_time(static_cast<double>(sample)), "samples_us", sample, times);
  }
}

void expect_date(std::string_view text) {
  constexpr std::size_t longest_to_tell = 64;
  expect_text("created_at", text, longest_to_tell);
  const auto number = [&](std::size_t at) { return (text[at] - '0') * 10 + text[at + 1] - '0'; };
  const auto within = [](int value, int least, int most) { return least <= value && value <= most; };
  const bool holds = is_time(text) && within(number(5), 1, 12) && within(number(8), 1, 31) &&
                     within(number(11), 0, 23) && within(number(14), 0, 59) && within(number(17), 0, 60);
  if (!holds)
    throw InvalidArgument("created_at", fmt::format("\"{}\"", text),
                          "a time such as 2026-11-21T12:13:58.797Z");
}

}  // namespace

void expect_possible(const MeasurementView& m) {
  const bool measured = m.outcome == name(Outcome::measured);
  expect_name("problem", m.problem);
  expect_name("device", m.device);
  expect_name("config", m.config);
  expect_name("template_digest", m.template_digest);
  expect_text("compile_key", m.compile_key, longest_text);
  expect_text("reason", m.reason, longest_reason);
  expect_date(m.created_at);
  expect_within("stage", m.stage, stage_of_checks, stage_of_finals);
  // A config that was rejected before it was timed has neither.
  const std::int64_t least = measured ? 1 : 0;
  expect_within("bytes", m.bytes, least, most_bytes);
  expect_within("rows", m.rows, least, most_rows);
  expect(!measured || m.rows <= m.bytes, "rows", m.rows,
         [&] { return fmt::format("1 to {}, the number of bytes that they move", m.bytes); });
  expect_figures(m);
  expect_within("registers", m.registers, 0, most_registers);
  expect_within("local_bytes", m.local_bytes, 0, most_local_bytes);
}

void expect_possible(const Measurement& measurement) {
  expect_possible(EncodedMeasurement(measurement).view());
}

std::string why_impossible(const MeasurementView& measurement) {
  try {
    expect_possible(measurement);
    return {};
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

std::string why_impossible(const Measurement& measurement) {
  return why_impossible(EncodedMeasurement(measurement).view());
}

bool is_possible(const Finalist& finalist) noexcept {
  return is_possible_time(finalist.median_us) && 1 <= finalist.rows && finalist.rows <= most_rows &&
         finalist.stage == stage_of_finals;
}

}  // namespace ce::cache
