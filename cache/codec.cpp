#include "cache/codec.hpp"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "ce/base/digest.hpp"

namespace ce::cache {
namespace {

using nlohmann::json;

std::string text_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string number(double value) { return text_of(json(value)); }

bool is_plain(char c) { return c >= ' ' && c <= '~' && c != '\\'; }

std::string quoted(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) { return is_plain(c) && c != '"'; });
  return plain ? '"' + text + '"' : text_of(json(text));
}

/// What encode_evidence() wrote, where nothing in it had to be escaped; else nothing.
std::optional<std::map<std::string, std::string>> plain_evidence(std::string_view text) {
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
  std::map<std::string, std::string> evidence;
  for (std::string_view before = "{\""; skip(before); before = ",\"") {
    std::string name = take();
    if (!skip("\":\"")) return std::nullopt;
    evidence.emplace_hint(evidence.end(), std::move(name), take());
    if (!skip("\"")) return std::nullopt;
  }
  if (evidence.empty() || text != "}") return std::nullopt;
  return evidence;
}

/// null, or a number that Figure can hold; of another, JSON's own conversion would be undefined.
template <class Figure>
Figure figure(const json& value) {
  if (value.is_null()) return std::numeric_limits<Figure>::quiet_NaN();
  const auto number = value.is_number() ? value.get<double>() : std::numeric_limits<double>::infinity();
  if (std::abs(number) > std::numeric_limits<Figure>::max())
    throw std::invalid_argument(text_of(value) + " is no number of its field");
  return static_cast<Figure>(number);
}

template <class Integer>
Integer whole_number(const json& value) {
  const bool fits = value.is_number_unsigned()
                        ? std::in_range<Integer>(value.get<std::uint64_t>())
                        : value.is_number_integer() && std::in_range<Integer>(value.get<std::int64_t>());
  if (!fits) throw std::invalid_argument(text_of(value) + " is no whole number of its field");
  return value.get<Integer>();
}

/// As utc_now() writes it: measurements are ordered by this text.
std::string time_text(std::string text) {
  constexpr std::string_view pattern = "0000-00-00T00:00:00.000Z";
  const bool fits =
      std::equal(text.begin(), text.end(), pattern.begin(), pattern.end(),
                 [](char c, char wanted) { return wanted == '0' ? c >= '0' && c <= '9' : c == wanted; });
  if (!fits)
    throw std::invalid_argument("created_at is \"" + text +
                                "\"; expected a time as 2026-11-21T12:13:58.797Z");
  return text;
}

Outcome parse_outcome(const std::string& text) {
  for (const Outcome outcome : {Outcome::measured, Outcome::quarantined})
    if (name(outcome) == text) return outcome;
  throw std::invalid_argument("outcome is \"" + text + "\"; expected measured or quarantined");
}

// By hand, in the order of a JSON library that sorts: each measurement that is read is compared with the digest of this.
std::string to_json(const Measurement& m, std::string_view evidence) {
  return fmt::format(
      FMT_COMPILE(
          R"({{"bytes":{},"compile_key":{},"config":{},"created_at":{},"device":{},"evidence":{},"local_bytes":{},)"
          R"("median_us":{},"outcome":"{}","problem":{},"reason":{},"registers":{},"rows":{},"samples_us":{},)"
          R"("spread":{},"stage":{},"template_digest":{}}})"),
      m.bytes, quoted(m.compile_key), quoted(m.config), quoted(m.created_at), quoted(m.key.device), evidence,
      m.local_bytes, number(m.median_us), name(m.outcome), quoted(m.key.problem), quoted(m.reason),
      m.registers, m.rows, text_of(m.samples_us), number(m.spread), m.stage, quoted(m.template_digest));
}

}  // namespace

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

std::string encode_evidence(const std::map<std::string, std::string>& evidence) {
  std::string text = "{";
  for (const auto& [name, value] : evidence)
    text.append(text.size() > 1 ? "," : "").append(quoted(name)).append(":").append(quoted(value));
  return text += '}';
}

std::map<std::string, std::string> decode_evidence(const std::string& text) {
  if (auto evidence = plain_evidence(text)) return *std::move(evidence);
  return json::parse(text).get<std::map<std::string, std::string>>();
}

std::string to_json(const Measurement& m) { return to_json(m, encode_evidence(m.evidence)); }

Measurement from_json(std::string_view text) {
  const json object = json::parse(text);
  Measurement m{.key = {.problem = object.at("problem"), .device = object.at("device")},
                .config = object.at("config"),
                .template_digest = object.at("template_digest"),
                .compile_key = object.at("compile_key"),
                .outcome = parse_outcome(object.at("outcome")),
                .reason = object.at("reason"),
                .stage = whole_number<int>(object.at("stage")),
                .rows = whole_number<std::int64_t>(object.at("rows")),
                .bytes = whole_number<std::int64_t>(object.at("bytes")),
                .samples_us = {},
                .median_us = figure<double>(object.at("median_us")),
                .spread = figure<double>(object.at("spread")),
                .registers = whole_number<int>(object.at("registers")),
                .local_bytes = whole_number<int>(object.at("local_bytes")),
                .evidence = object.at("evidence"),
                .created_at = time_text(object.at("created_at"))};
  for (const json& sample : object.at("samples_us")) m.samples_us.push_back(figure<float>(sample));
  return m;
}

std::string identity_of(const Measurement& measurement) { return digest({to_json(measurement)}); }

std::string identity_of(const Measurement& measurement, std::string_view evidence) {
  return digest({to_json(measurement, evidence)});
}

std::string digest_of_binary(std::string_view compile_key, std::span<const std::byte> image) {
  return digest({compile_key, {reinterpret_cast<const char*>(image.data()), image.size()}});
}

}  // namespace ce::cache
