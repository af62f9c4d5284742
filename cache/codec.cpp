#include "cache/codec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
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

void append_number(std::string& text, std::int64_t value) {
  const fmt::format_int digits(value);
  text.append(digits.data(), digits.size());
}

float sample_at(std::span<const std::byte> bytes, std::size_t at) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < 4; ++i) bits |= std::to_integer<std::uint32_t>(bytes[at + i]) << (8 * i);
  return std::bit_cast<float>(bits);
}

void append_samples(std::string& text, std::span<const std::byte> bytes) {
  text += '[';
  for (std::size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    if (at > 0) text += ',';
    append_number(text, static_cast<double>(sample_at(bytes, at)));
  }
  text += ']';
}

bool is_plain(char c) { return (c >= ' ') & (c <= '~') & (c != '\\'); }

/// Looks at all of it, which a compiler turns into a few instructions for many characters.
bool is_plain_text(std::string_view text, bool quotes = true) {
  bool plain = true;
  for (const char c : text) plain &= is_plain(c) & (quotes | (c != '"'));
  return plain;
}

void append_quoted(std::string& text, std::string_view value) {
  if (is_plain_text(value, false))
    text.append(1, '"').append(value).append(1, '"');
  else
    text += text_of(json(std::string(value)));
}

/// Reads, from its beginning to its end, JSON that was written here and in which nothing had to be escaped. What it does
/// not expect it refuses, for the JSON library to read or to tell what is wrong.
class PlainText {
 public:
  /// \param text  of plain characters alone
  explicit PlainText(std::string_view text) : rest_(text) {}

  [[nodiscard]] std::string_view rest() const noexcept { return rest_; }
  bool skip(std::string_view expected) {
    const bool found = rest_.starts_with(expected);
    if (found) rest_.remove_prefix(expected.size());
    return found;
  }
  /// Up to the next quotation mark.
  std::string_view take_text() { return take(rest_.find('"')); }
  /// A name of a field, with what stands before it, and its text.
  bool take_text(std::string_view before, std::string& value) {
    if (!skip(before) || !skip("\"")) return false;
    value = take_text();
    return skip("\"");
  }
  /// \tparam Integer  may not hold what is too large
  template <class Integer>
  bool take_integer(std::string_view before, Integer& value) {
    if (!skip(before)) return false;
    const std::string_view digits = take_number();
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size();
  }
  /// A number that Figure can hold, or null.
  template <class Figure>
  bool take_figure(Figure& value) {
    if (skip("null")) {
      value = std::numeric_limits<Figure>::quiet_NaN();
      return true;
    }
    const std::string_view digits = take_number();
    if (digits == "-0") return false;  // an integer to the JSON library: 0 without a sign
    double number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const bool fits = error == std::errc() && end == digits.data() + digits.size() &&
                      std::abs(number) <= std::numeric_limits<Figure>::max();
    if (fits) value = static_cast<Figure>(number);
    return fits;
  }

 private:
  std::string_view take(std::size_t count) {
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  /// A number of JSON: its digits have none of the forms that are numbers elsewhere, as 01, .5 and nan.
  std::string_view take_number() {
    std::size_t at = 0;
    const auto is_digit = [&](std::size_t where) {
      return where < rest_.size() && rest_[where] >= '0' && rest_[where] <= '9';
    };
    const auto is = [&](char c) { return at < rest_.size() && rest_[at] == c; };
    const auto pass_digits = [&] {
      const std::size_t first = at;
      while (is_digit(at)) ++at;
      return at > first;
    };
    if (is('-')) ++at;
    if (is('0') && is_digit(at + 1)) return {};
    if (!pass_digits()) return {};
    if (is('.')) {
      ++at;
      if (!pass_digits()) return {};
    }
    if (is('e') || is('E')) {
      ++at;
      if (is('-') || is('+')) ++at;
      if (!pass_digits()) return {};
    }
    return take(at);
  }

  std::string_view rest_;
};

/// What encode_environment() wrote, where nothing in it had to be escaped; else nothing.
std::optional<std::map<std::string, std::string>> take_environment(PlainText& text) {
  std::map<std::string, std::string> environment;
  for (std::string_view before = "{\""; text.skip(before); before = ",\"") {
    std::string name(text.take_text());
    // In order: a name that is there twice is for the JSON library to refuse.
    const bool in_order = environment.empty() || environment.rbegin()->first < name;
    if (!in_order || !text.skip("\":\"")) return std::nullopt;
    environment.emplace_hint(environment.end(), std::move(name), text.take_text());
    if (!text.skip("\"")) return std::nullopt;
  }
  if (environment.empty() || !text.skip("}")) return std::nullopt;
  return environment;
}

std::optional<std::map<std::string, std::string>> plain_environment(std::string_view text) {
  if (!is_plain_text(text)) return std::nullopt;
  PlainText plain(text);
  auto environment = take_environment(plain);
  if (!plain.rest().empty()) return std::nullopt;
  return environment;
}

bool take_samples(PlainText& text, std::vector<float>& samples) {
  if (!text.skip("[")) return false;
  if (text.skip("]")) return true;
  do {
    if (!text.take_figure(samples.emplace_back())) return false;
  } while (text.skip(","));
  return text.skip("]");
}

bool take_outcome(PlainText& text, Outcome& outcome) {
  std::string word;
  if (!text.take_text(R"(,"outcome":)", word)) return false;
  outcome = word == name(Outcome::measured) ? Outcome::measured : Outcome::quarantined;
  return word == name(outcome);
}

/// What to_json() wrote, where nothing in it had to be escaped; else nothing.
std::optional<Measurement> plain_measurement(std::string_view line) {
  if (!is_plain_text(line)) return std::nullopt;
  Measurement m;
  PlainText text(line);
  const auto take_environment_of = [&](Measurement& measurement) {
    // Lines of one search come one after the other, and have the same.
    thread_local std::string last_text;
    thread_local Environment last;
    if (!text.skip(R"(,"environment":)")) return false;
    if (last_text.empty() || !text.skip(last_text)) {
      const std::string_view before = text.rest();
      auto environment = take_environment(text);
      if (!environment) return false;
      last_text = before.substr(0, before.size() - text.rest().size());
      last = *std::move(environment);
    }
    measurement.environment = last;
    return true;
  };
  const bool taken =
      text.take_integer(R"({"bytes":)", m.bytes) && text.take_text(R"(,"compile_key":)", m.compile_key) &&
      text.take_text(R"(,"config":)", m.config) && text.take_text(R"(,"created_at":)", m.created_at) &&
      text.take_text(R"(,"device":)", m.key.device) && take_environment_of(m) &&
      text.take_integer(R"(,"local_bytes":)", m.local_bytes) && text.skip(R"(,"median_us":)") &&
      text.take_figure(m.median_us) && take_outcome(text, m.outcome) &&
      text.take_text(R"(,"problem":)", m.key.problem) && text.take_text(R"(,"reason":)", m.reason) &&
      text.take_integer(R"(,"registers":)", m.registers) && text.take_integer(R"(,"rows":)", m.rows) &&
      text.skip(R"(,"samples_us":)") && take_samples(text, m.samples_us) && text.skip(R"(,"spread":)") &&
      text.take_figure(m.spread) && text.take_integer(R"(,"stage":)", m.stage) &&
      text.take_text(R"(,"template_digest":)", m.template_digest) && text.skip("}");
  if (!taken || !text.rest().empty() || !is_time(m.created_at)) return std::nullopt;
  return m;
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

}  // namespace

// By hand, in the order of a JSON library that sorts: each measurement that is read is compared with the digest of this.
void append_json(std::string& text, const MeasurementView& m) {
  const auto add_text = [&](std::string_view name, std::string_view value) {
    text += name;
    append_quoted(text, value);
  };
  const auto add_number = [&](std::string_view name, auto value) {
    text += name;
    append_number(text, value);
  };
  add_number(R"({"bytes":)", m.bytes);
  add_text(R"(,"compile_key":)", m.compile_key);
  add_text(R"(,"config":)", m.config);
  add_text(R"(,"created_at":)", m.created_at);
  add_text(R"(,"device":)", m.device);
  text.append(R"(,"environment":)").append(m.environment);
  add_number(R"(,"local_bytes":)", m.local_bytes);
  add_number(R"(,"median_us":)", m.median_us);
  add_text(R"(,"outcome":)", m.outcome);
  add_text(R"(,"problem":)", m.problem);
  add_text(R"(,"reason":)", m.reason);
  add_number(R"(,"registers":)", m.registers);
  add_number(R"(,"rows":)", m.rows);
  text += R"(,"samples_us":)";
  append_samples(text, m.samples);
  add_number(R"(,"spread":)", m.spread);
  add_number(R"(,"stage":)", m.stage);
  add_text(R"(,"template_digest":)", m.template_digest);
  text += '}';
}

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
  for (std::size_t at = 0; at + 4 <= bytes.size(); at += 4) samples.push_back(sample_at(bytes, at));
  return samples;
}

std::string encode_environment(const std::map<std::string, std::string>& environment) {
  std::string text = "{";
  for (const auto& [name, value] : environment) {
    if (text.size() > 1) text += ',';
    append_quoted(text, name);
    text += ':';
    append_quoted(text, value);
  }
  return text += '}';
}

std::map<std::string, std::string> decode_environment(const std::string& text) {
  if (auto environment = plain_environment(text)) return *std::move(environment);
  return parse_json<json>(text).get<std::map<std::string, std::string>>();
}

std::string to_json(const Measurement& m) {
  const std::vector<std::byte> samples = encode_samples(m.samples_us);
  const std::string environment = encode_environment(m.environment.map());
  constexpr std::size_t usual_rest = 512, usual_sample = 18;
  std::string text;
  text.reserve(environment.size() + usual_rest + usual_sample * m.samples_us.size());
  append_json(text, {.problem = m.key.problem,
                     .device = m.key.device,
                     .config = m.config,
                     .template_digest = m.template_digest,
                     .compile_key = m.compile_key,
                     .outcome = name(m.outcome),
                     .reason = m.reason,
                     .stage = m.stage,
                     .rows = m.rows,
                     .bytes = m.bytes,
                     .samples = samples,
                     .median_us = m.median_us,
                     .spread = m.spread,
                     .registers = m.registers,
                     .local_bytes = m.local_bytes,
                     .environment = environment,
                     .created_at = m.created_at});
  return text;
}

Measurement from_json(std::string_view text) {
  if (auto measurement = plain_measurement(text)) return *std::move(measurement);
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

std::string digest_of_binary(std::string_view compile_key, std::span<const std::byte> image) {
  return digest({compile_key, {reinterpret_cast<const char*>(image.data()), image.size()}});
}

}  // namespace ce::cache
