#include "cache/codec.hpp"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/bounded_json.hpp"
#include "base/digest.hpp"
#include "ce/error.hpp"

namespace ce::cache {
namespace {

using nlohmann::json;

std::string text_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

/// As the JSON library writes it, without a value of that in between: each measurement that is read is written, too.
void append_number(std::string& text, double value) {
  std::array<char, 64> digits{};
  if (std::isfinite(value))
    text.append(digits.data(),
                nlohmann::detail::to_chars(digits.data(), digits.data() + digits.size(), value));
  else
    text += "null";
}

std::string number(double value) {
  std::string text;
  append_number(text, value);
  return text;
}

std::string numbers(const std::vector<float>& values) {
  constexpr std::size_t usual = 18;
  std::string text = "[";
  text.reserve(usual * values.size() + 2);
  for (const float value : values) {
    if (text.size() > 1) text += ',';
    append_number(text, static_cast<double>(value));
  }
  return text += ']';
}

bool is_plain(char c) { return c >= ' ' && c <= '~' && c != '\\'; }

std::string quoted(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) { return is_plain(c) && c != '"'; });
  return plain ? '"' + text + '"' : text_of(json(text));
}

/// What encode_environment() wrote, where nothing in it had to be escaped; else nothing.
std::optional<std::map<std::string, std::string>> plain_environment(std::string_view text) {
  if (!std::all_of(text.begin(), text.end(), is_plain)) return std::nullopt;
  const auto skip = [&text](std::string_view expected) {
    const bool found = text.starts_with(expected);
    if (found) text.remove_prefix(expected.size());
    return found;
  };
  const auto take = [&text] {
    const std::string_view taken = text.substr(0, text.find('"'));
    text.remove_prefix(taken.size());
    return std::string(taken);
  };
  std::map<std::string, std::string> environment;
  for (std::string_view before = "{\""; skip(before); before = ",\"") {
    std::string name = take();
    if (!skip("\":\"")) return std::nullopt;
    environment.emplace_hint(environment.end(), std::move(name), take());
    if (!skip("\"")) return std::nullopt;
  }
  if (environment.empty() || text != "}") return std::nullopt;
  return environment;
}

[[noreturn]] void refuse(std::string_view field, const json& value, std::string_view expected) {
  constexpr std::size_t longest = 80;
  std::string text = text_of(value);
  if (text.size() > longest) text = text.substr(0, longest) + "..";
  throw InvalidArgument(field, text, expected);
}

/// Of the object of a measurement.
const json& value_of(const json& object, const char* field) {
  if (!object.is_object()) refuse("the line", object, "an object");
  const auto found = object.find(field);
  if (found == object.end()) throw InvalidArgument(field, "missing", "an object of all its fields");
  return *found;
}

std::string text_in(const json& object, const char* field) {
  const json& value = value_of(object, field);
  if (!value.is_string()) refuse(field, value, "a text");
  return value.get<std::string>();
}

/// null, or a number that Figure can hold; of another, JSON's own conversion would be undefined.
template <class Figure>
Figure figure(const char* field, const json& value) {
  if (value.is_null()) return std::numeric_limits<Figure>::quiet_NaN();
  const auto number = value.is_number() ? value.get<double>() : std::numeric_limits<double>::infinity();
  if (std::abs(number) > std::numeric_limits<Figure>::max())
    refuse(field, value, fmt::format("a number of {} bits, or null", 8 * sizeof(Figure)));
  return static_cast<Figure>(number);
}

std::vector<float> samples_in(const json& object) {
  constexpr const char* field = "samples_us";
  const json& list = value_of(object, field);
  if (!list.is_array()) refuse(field, list, "an array of numbers");
  std::vector<float> samples;
  samples.reserve(list.size());
  for (const json& sample : list) samples.push_back(figure<float>(field, sample));
  return samples;
}

template <class Integer>
Integer whole_number_in(const json& object, const char* field) {
  const json& value = value_of(object, field);
  const bool fits = value.is_number_unsigned()
                        ? std::in_range<Integer>(value.get<std::uint64_t>())
                        : value.is_number_integer() && std::in_range<Integer>(value.get<std::int64_t>());
  if (!fits) refuse(field, value, fmt::format("a whole number of {} bits", 8 * sizeof(Integer)));
  return value.get<Integer>();
}

std::map<std::string, std::string> environment_in(const json& object) {
  const json& value = value_of(object, "environment");
  const bool fits = value.is_object() &&
                    std::all_of(value.begin(), value.end(), [](const json& one) { return one.is_string(); });
  if (!fits) refuse("environment", value, "an object of texts");
  return value.get<std::map<std::string, std::string>>();
}

std::string time_in(const json& object) {
  constexpr const char* field = "created_at";
  std::string text = text_in(object, field);
  if (!is_time(text)) refuse(field, text, "a time as 2026-11-21T12:13:58.797Z");
  return text;
}

Outcome outcome_in(const json& object) {
  const std::string text = text_in(object, "outcome");
  for (const Outcome outcome : {Outcome::measured, Outcome::quarantined})
    if (name(outcome) == text) return outcome;
  refuse("outcome", text, "measured or quarantined");
}

// By hand, in the order of a JSON library that sorts: each measurement that is read is compared with the digest of this.
std::string to_json(const Measurement& m, std::string_view environment) {
  return fmt::format(
      FMT_COMPILE(
          R"({{"bytes":{},"compile_key":{},"config":{},"created_at":{},"device":{},"environment":{},"local_bytes":{},)"
          R"("median_us":{},"outcome":"{}","problem":{},"reason":{},"registers":{},"rows":{},"samples_us":{},)"
          R"("spread":{},"stage":{},"template_digest":{}}})"),
      m.bytes, quoted(m.compile_key), quoted(m.config), quoted(m.created_at), quoted(m.key.device),
      environment, m.local_bytes, number(m.median_us), name(m.outcome), quoted(m.key.problem),
      quoted(m.reason), m.registers, m.rows, numbers(m.samples_us), number(m.spread), m.stage,
      quoted(m.template_digest));
}

}  // namespace

bool is_time(std::string_view text) noexcept {
  constexpr std::string_view pattern = "0000-00-00T00:00:00.000Z";
  return std::equal(text.begin(), text.end(), pattern.begin(), pattern.end(),
                    [](char c, char wanted) { return wanted == '0' ? c >= '0' && c <= '9' : c == wanted; });
}

std::vector<std::byte> encode_samples(std::span<const float> samples) {
  std::vector<std::byte> bytes;
  bytes.reserve(4 * samples.size());
  for (const float sample : samples) {
    const auto bits = std::bit_cast<std::uint32_t>(sample);
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<std::byte>(bits >> shift));
  }
  return bytes;
}

std::vector<float> decode_samples(std::span<const std::byte> bytes) {
  std::vector<float> samples;
  samples.reserve(bytes.size() / 4);
  for (std::size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 4; ++i) bits |= std::to_integer<std::uint32_t>(bytes[at + i]) << (8 * i);
    samples.push_back(std::bit_cast<float>(bits));
  }
  return samples;
}

std::string encode_environment(const std::map<std::string, std::string>& environment) {
  std::string text = "{";
  for (const auto& [name, value] : environment)
    text.append(text.size() > 1 ? "," : "").append(quoted(name)).append(":").append(quoted(value));
  return text += '}';
}

std::map<std::string, std::string> decode_environment(const std::string& text) {
  if (auto environment = plain_environment(text)) return *std::move(environment);
  return parse_json<json>(text).get<std::map<std::string, std::string>>();
}

std::string to_json(const Measurement& m) { return to_json(m, encode_environment(m.environment.map())); }

Measurement from_json(std::string_view text) {
  const json object = parse_json<json>(text);
  return {.key = {.problem = text_in(object, "problem"), .device = text_in(object, "device")},
          .config = text_in(object, "config"),
          .template_digest = text_in(object, "template_digest"),
          .compile_key = text_in(object, "compile_key"),
          .outcome = outcome_in(object),
          .reason = text_in(object, "reason"),
          .stage = whole_number_in<int>(object, "stage"),
          .rows = whole_number_in<std::int64_t>(object, "rows"),
          .bytes = whole_number_in<std::int64_t>(object, "bytes"),
          .samples_us = samples_in(object),
          .median_us = figure<double>("median_us", value_of(object, "median_us")),
          .spread = figure<double>("spread", value_of(object, "spread")),
          .registers = whole_number_in<int>(object, "registers"),
          .local_bytes = whole_number_in<int>(object, "local_bytes"),
          .environment = environment_in(object),
          .created_at = time_in(object)};
}

std::string identity_of_line(std::string_view line) { return digest({line}); }

std::string identity_of(const Measurement& measurement) { return digest({to_json(measurement)}); }

std::string identity_of(const Measurement& measurement, std::string_view environment) {
  return digest({to_json(measurement, environment)});
}

std::string digest_of_binary(std::string_view compile_key, std::span<const std::byte> image) {
  return digest({compile_key, {reinterpret_cast<const char*>(image.data()), image.size()}});
}

}  // namespace ce::cache
