#include "cache/codec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
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

/// Writes text like the JSON library, but without creating a value of the library: every measurement that is read is
/// written, too.
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

void append_samples(std::string& text, std::span<const std::byte> bytes) {
  text += '[';
  for (std::size_t i = 0; i < count_of_samples(bytes); ++i) {
    if (i > 0) text += ',';
    append_number(text, static_cast<double>(sample_at(bytes, i)));
  }
  text += ']';
}

/// Eight characters, or one character eight times.
using Characters = std::uint64_t;
constexpr Characters all_of(char c) {
  return Characters{static_cast<unsigned char>(c)} * 0x0101010101010101U;
}

/// Whether one of them is below `least`, which is at most 128.
constexpr bool any_below(Characters characters, char least) {
  return ((characters - all_of(least)) & ~characters & all_of('\x80')) != 0;
}

/// Whether all characters are printable ASCII that needs no escape. Most texts are too short for loops of many
/// characters at once.
bool is_plain_text(std::string_view text, bool quotes = true) {
  const auto is_plain = [&](Characters c) {
    const bool printable =
        !any_below(c, ' ') && (c & all_of('\x80')) == 0 && !any_below(c ^ all_of('\x7f'), 1);
    return printable && !any_below(c ^ all_of('\\'), 1) && (quotes || !any_below(c ^ all_of('"'), 1));
  };
  Characters eight = 0;
  for (; text.size() >= sizeof eight; text.remove_prefix(sizeof eight)) {
    std::memcpy(&eight, text.data(), sizeof eight);
    if (!is_plain(eight)) return false;
  }
  eight = all_of(' ');
  if (!text.empty()) std::memcpy(&eight, text.data(), text.size());  // that of an empty column may be null
  return is_plain(eight);
}

void append_quoted(std::string& text, std::string_view value) {
  if (is_plain_text(value, false))
    text.append(1, '"').append(value).append(1, '"');
  else
    text += text_of(json(std::string(value)));
}

/// A fast reader of JSON that this file wrote and in which nothing had to be escaped. It rejects anything else, which
/// the JSON library then parses or reports.
class PlainText {
 public:
  /// \param text  printable ASCII only
  explicit PlainText(std::string_view text) : rest_(text) {}

  [[nodiscard]] std::string_view rest() const noexcept { return rest_; }
  bool skip(std::string_view expected) {
    const bool found = rest_.starts_with(expected);
    if (found) rest_.remove_prefix(expected.size());
    return found;
  }
  /// The text up to the next quotation mark.
  std::string_view take_text() { return take(rest_.find('"')); }
  /// The text of a field, after its separator and name.
  bool take_text(std::string_view before, std::string_view& value) {
    if (!skip(before) || !skip("\"")) return false;
    value = take_text();
    return skip("\"");
  }
  /// \tparam Integer  an integer type that may be too small for the number
  template <class Integer = std::int64_t>
  bool take_integer(std::string_view before, std::int64_t& value) {
    if (!skip(before)) return false;
    const std::string_view digits = take_number();
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() && std::in_range<Integer>(value);
  }
  /// A number that Figure can hold, or null.
  template <class Figure>
  bool take_figure(Figure& value) {
    if (skip("null")) {
      value = std::numeric_limits<Figure>::quiet_NaN();
      return true;
    }
    const std::string_view digits = take_number();
    if (digits == "-0") return false;  // the JSON library reads it as the integer 0, without a sign
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
  /// Whether the digits have the form of a JSON number, unlike 01, .5 and nan.
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

/// Parses what encode_environment() wrote if nothing in it had to be escaped; else returns nothing.
std::optional<std::map<std::string, std::string>> take_environment(PlainText& text) {
  std::map<std::string, std::string> environment;
  for (std::string_view before = "{\""; text.skip(before); before = ",\"") {
    std::string name(text.take_text());
    // Names must be in order: the JSON library rejects a repeated name.
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

void append_sample(std::vector<std::byte>& bytes, float sample) {
  const auto bits = std::bit_cast<std::uint32_t>(sample);
  const auto byte = [&](int shift) { return static_cast<std::byte>(bits >> shift); };
  bytes.insert(bytes.end(), {byte(0), byte(8), byte(16), byte(24)});
}

bool take_samples(PlainText& text, std::vector<std::byte>& samples) {
  if (!text.skip("[")) return false;
  if (text.skip("]")) return true;
  constexpr std::size_t usual_samples = 15;
  samples.reserve(sizeof(float) * usual_samples);
  do {
    float sample = 0;
    if (!text.take_figure(sample)) return false;
    append_sample(samples, sample);
  } while (text.skip(","));
  return text.skip("]");
}

bool take_outcome(PlainText& text, std::string_view& outcome) {
  std::string_view word;
  if (!text.take_text(R"(,"outcome":)", word)) return false;
  for (const Outcome one : {Outcome::measured, Outcome::quarantined})
    if (name(one) == word) {
      outcome = name(one);
      return true;
    }
  return false;
}

/// Consecutive lines of one search have the same environment.
struct LastEnvironment {
  std::string text;
  Environment values;
};

LastEnvironment& last_environment() {
  thread_local LastEnvironment last;
  return last;
}

bool take_environment(PlainText& text, std::string_view& environment) {
  LastEnvironment& last = last_environment();
  if (!text.skip(R"(,"environment":)")) return false;
  const std::string_view before = text.rest();
  if (last.text.empty() || !text.skip(last.text)) {
    auto values = take_environment(text);
    if (!values) return false;
    last = {.text = std::string(before.substr(0, before.size() - text.rest().size())),
            .values = *std::move(values)};
  }
  environment = before.substr(0, last.text.size());
  return true;
}

/// A view of a line that to_json() wrote, if nothing in it had to be escaped; else nothing.
/// \param samples  receives the view's samples
std::optional<MeasurementView> plain_measurement(std::string_view line, std::vector<std::byte>& samples) {
  if (!is_plain_text(line)) return std::nullopt;
  MeasurementView m;
  PlainText text(line);
  const bool taken =
      text.take_integer(R"({"bytes":)", m.bytes) && text.take_text(R"(,"compile_key":)", m.compile_key) &&
      text.take_text(R"(,"config":)", m.config) && text.take_text(R"(,"created_at":)", m.created_at) &&
      text.take_text(R"(,"device":)", m.device) && take_environment(text, m.environment) &&
      text.take_integer<int>(R"(,"local_bytes":)", m.local_bytes) && text.skip(R"(,"median_us":)") &&
      text.take_figure(m.median_us) && take_outcome(text, m.outcome) &&
      text.take_text(R"(,"problem":)", m.problem) && text.take_text(R"(,"reason":)", m.reason) &&
      text.take_integer<int>(R"(,"registers":)", m.registers) && text.take_integer(R"(,"rows":)", m.rows) &&
      text.skip(R"(,"samples_us":)") && take_samples(text, samples) && text.skip(R"(,"spread":)") &&
      text.take_figure(m.spread) && text.take_integer<int>(R"(,"stage":)", m.stage) &&
      text.take_text(R"(,"template_digest":)", m.template_digest) && text.skip("}");
  if (!taken || !text.rest().empty() || !is_time(m.created_at)) return std::nullopt;
  m.samples = samples;
  return m;
}

[[noreturn]] void refuse(std::string_view field, const json& value, std::string_view expected) {
  constexpr std::size_t longest = 80;
  std::string text = text_of(value);
  if (text.size() > longest) text = text.substr(0, longest) + "..";
  throw InvalidArgument(field, text, expected);
}

/// Reads a field of a measurement's object.
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

/// null, or a number that Figure can hold; the JSON library's conversion of other numbers is undefined.
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

// Written by hand, with names in the order of a sorting JSON library: each measurement that is read is compared with
// the digest of this text.
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
  for (const float sample : samples) append_sample(bytes, sample);
  return bytes;
}

std::vector<float> decode_samples(std::span<const std::byte> bytes) {
  std::vector<float> samples;
  samples.reserve(count_of_samples(bytes));
  for (std::size_t i = 0; i < count_of_samples(bytes); ++i) samples.push_back(sample_at(bytes, i));
  return samples;
}

float sample_at(std::span<const std::byte> bytes, std::size_t number) noexcept {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < sizeof bits; ++i)
    bits |= std::to_integer<std::uint32_t>(bytes[sizeof bits * number + i]) << (8 * i);
  return std::bit_cast<float>(bits);
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

EncodedMeasurement::EncodedMeasurement(const Measurement& m)
    : samples_(encode_samples(m.samples_us)),
      environment_(encode_environment(m.environment.map())),
      view_{.problem = m.key.problem,
            .device = m.key.device,
            .config = m.config,
            .template_digest = m.template_digest,
            .compile_key = m.compile_key,
            .outcome = name(m.outcome),
            .reason = m.reason,
            .stage = m.stage,
            .rows = m.rows,
            .bytes = m.bytes,
            .samples = samples_,
            .median_us = m.median_us,
            .spread = m.spread,
            .registers = m.registers,
            .local_bytes = m.local_bytes,
            .environment = environment_,
            .created_at = m.created_at} {}

std::string to_json(const Measurement& measurement) {
  const EncodedMeasurement encoded(measurement);
  constexpr std::size_t usual_rest = 512, usual_sample = 18;
  std::string text;
  text.reserve(encoded.view().environment.size() + usual_rest + usual_sample * measurement.samples_us.size());
  append_json(text, encoded.view());
  return text;
}

Measurement from_json(std::string_view text) {
  std::vector<std::byte> samples;
  if (const auto plain = plain_measurement(text, samples))
    return measurement_of(*plain, last_environment().values);
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

ParsedMeasurement::ParsedMeasurement(std::string_view line) {
  if (const auto plain = plain_measurement(line, samples_)) {
    view_ = *plain;
    return;
  }
  odd_ = std::make_unique<Odd>(from_json(line));
  view_ = odd_->encoded.view();
}

Measurement measurement_of(const MeasurementView& view, const Environment& environment) {
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
          .environment = environment,
          .created_at = std::string(view.created_at)};
}

std::string identity_of_line(std::string_view line) { return digest({line}); }

std::string identity_of(const Measurement& measurement) { return digest({to_json(measurement)}); }

std::string digest_of_binary(std::string_view compile_key, std::span<const std::byte> image) {
  return digest({compile_key, {reinterpret_cast<const char*>(image.data()), image.size()}});
}

}  // namespace ce::cache
