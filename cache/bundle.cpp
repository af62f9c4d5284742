#include "cache/bundle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <exception>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ostream>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/bounded_json.hpp"
#include "base/environment.hpp"
#include "base/printable.hpp"
#include "cache/possible.hpp"
#include "cache/signature.hpp"
#include "cache/store.hpp"
#include "ce/error.hpp"

namespace ce::cache {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int version_of_bundles = 1;
constexpr std::string_view beginning_of_all = R"({"format":"ce bundle")";
constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// More than any fleet needs: a thousand decisions with their kernels take some 100 MiB.
constexpr std::uintmax_t most_bytes_of_bundle = std::uintmax_t{1} << 30;
constexpr std::size_t longest_why = 4096;

std::string first_line_of_bundle() {
  return fmt::format(R"({},"version":{}}})", beginning_of_all, version_of_bundles);
}

std::string in_base64(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    unsigned group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8U | (i < count ? std::to_integer<unsigned>(bytes[at + i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i) text += i <= count ? digits[group >> (18 - 6 * i) & 63U] : '=';
  }
  return text;
}

/// \throws InvalidArgument
std::vector<std::byte> from_base64(std::string_view text) {
  const auto refuse = [&] {
    throw InvalidArgument("image", fmt::format("{} characters", text.size()), "bytes in Base64");
  };
  if (text.size() % 4 != 0) refuse();
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::vector<std::byte> bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (std::size_t at = 0; at < text.size(); at += 4) {
    unsigned group = 0;
    const std::size_t kept = at + 4 == text.size() ? 4 - padding : 4;
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t digit = i < kept ? digits.find(text[at + i]) : 0;
      if (digit == std::string_view::npos) refuse();
      group = group << 6U | static_cast<unsigned>(digit);
    }
    for (std::size_t i = 0; i + 1 < kept; ++i)
      bytes.push_back(static_cast<std::byte>(group >> (16 - 8 * i) & 0xffU));
  }
  return bytes;
}

/// Rounds to the digits that matter in a diff.
double rounded(double us) { return std::round(us * 1000) / 1000; }

json json_of(const BundledDecision& decision) {
  json object{{"device", decision.key.device},
              {"problem", decision.key.problem},
              {"config", decision.config},
              {"templates", decision.template_digest},
              {"why", decision.why},
              {"compile_key", decision.compile_key},
              {"rows", decision.rows},
              {"bytes", decision.bytes},
              {"registers", decision.registers},
              {"median_us", nullptr}};
  if (decision.median_us > 0) object["median_us"] = rounded(decision.median_us);
  if (decision.pinned) object["pinned"] = true;
  return object;
}

std::string line_of(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

json end_of_bundle(const Bundle& bundle) {
  return {{"decisions", bundle.decisions.size()}, {"binaries", bundle.binaries.size()}};
}

const json& bundled_value(const json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end()) throw InvalidArgument(field, "missing", "an object of all its fields");
  return *found;
}

std::string bundled_text(const json& object, const char* field) {
  const json& value = bundled_value(object, field);
  if (!value.is_string()) throw InvalidArgument(field, line_of(value).substr(0, 80), "a text");
  return value.get<std::string>();
}

std::int64_t bundled_number(const json& object, const char* field) {
  const json& value = bundled_value(object, field);
  if (!value.is_number_integer() || value > std::numeric_limits<std::int64_t>::max())
    throw InvalidArgument(field, line_of(value).substr(0, 80), "a whole number");
  return value.get<std::int64_t>();
}

Measurement as_measurement(const BundledDecision& decision) {
  return {.key = decision.key,
          .config = decision.config,
          .template_digest = decision.template_digest,
          .compile_key = decision.compile_key,
          .stage = stage_of_finals,
          .rows = decision.rows,
          .bytes = decision.bytes,
          .samples_us = {static_cast<float>(decision.median_us)},
          .median_us = decision.median_us,
          .registers = decision.registers,
          .created_at = std::string(undated)};
}

/// \throws InvalidArgument naming the field
BundledDecision bundled_decision(const json& object) {
  BundledDecision decision{
      .key = {.problem = bundled_text(object, "problem"), .device = bundled_text(object, "device")},
      .config = bundled_text(object, "config"),
      .template_digest = bundled_text(object, "templates"),
      .compile_key = bundled_text(object, "compile_key"),
      .why = bundled_text(object, "why"),
      .pinned = object.value("pinned", false),
      .rows = bundled_number(object, "rows"),
      .bytes = bundled_number(object, "bytes"),
      .median_us = 0,
      .registers =
          static_cast<int>(std::clamp<std::int64_t>(bundled_number(object, "registers"), -1, 1 << 20))};
  if (decision.why.size() > longest_why)
    throw InvalidArgument("why", fmt::format("{} bytes long", decision.why.size()),
                          fmt::format("{} at most", longest_why));
  if (decision.pinned && decision.why.empty())
    throw InvalidArgument("why", "empty", "the reason for the pinned decision");
  const json& median = bundled_value(object, "median_us");
  const bool is_timed = !median.is_null();
  if (is_timed && !median.is_number())
    throw InvalidArgument("median_us", line_of(median).substr(0, 80), "a number, or null");
  if (is_timed) decision.median_us = median.get<double>();
  if (!is_timed && !decision.pinned)
    throw InvalidArgument("median_us", "null", "a number, because the decision is not pinned");
  Measurement measurement = as_measurement(decision);
  if (!is_timed) measurement.outcome = Outcome::quarantined;  // as possible.hpp requires of an untimed config
  expect_possible(measurement);
  return decision;
}

/// The sort order of a bundle.
auto order_of(const BundledDecision& decision) { return std::tie(decision.key.device, decision.key.problem); }

}  // namespace

void write_bundle(std::ostream& out, Bundle bundle) {
  std::sort(bundle.decisions.begin(), bundle.decisions.end(),
            [](const auto& a, const auto& b) { return order_of(a) < order_of(b); });
  std::sort(bundle.binaries.begin(), bundle.binaries.end(),
            [](const auto& a, const auto& b) { return a.compile_key < b.compile_key; });
  out << first_line_of_bundle() << '\n';
  for (const BundledDecision& decision : bundle.decisions) out << line_of(json_of(decision)) << '\n';
  for (const BundledBinary& binary : bundle.binaries)
    out << line_of({{"binary", binary.compile_key}, {"image", in_base64(binary.image)}}) << '\n';
  out << end_of_bundle(bundle).dump() << '\n';
}

bool is_bundle(std::string_view beginning) noexcept { return beginning.starts_with(beginning_of_all); }

Bundle read_bundle(std::string_view text, const std::string& name) {
  Bundle bundle;
  std::int64_t number = 0;
  bool has_ended = false;
  const auto fail = [&](std::string_view found, std::string_view expected) {
    throw InvalidArgument(fmt::format("line {} of {}", number, name), found, expected);
  };
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++number;
    if (has_ended) fail("after the end of the bundle", fmt::format("nothing after line {}", number - 1));
    if (number == 1) {
      if (line != first_line_of_bundle())
        fail(
            is_bundle(line) ? "the first line of another version's bundle" : "not the first line of a bundle",
            first_line_of_bundle());
      continue;
    }
    try {
      const json object = parse_json<json>(line, {.most_bytes = std::size_t{256} << 20});
      if (!object.is_object()) throw InvalidArgument("the line", "not an object", "a JSON object");
      if (object.contains("config")) {
        BundledDecision decision = bundled_decision(object);
        if (!bundle.decisions.empty() && order_of(bundle.decisions.back()) >= order_of(decision))
          throw InvalidArgument("the decision", "out of order or given twice",
                                "one decision for each key, in the order of devices and then of problems");
        bundle.decisions.push_back(std::move(decision));
      } else if (object.contains("binary")) {
        bundle.binaries.push_back(
            {bundled_text(object, "binary"), from_base64(bundled_text(object, "image"))});
      } else {
        if (object != end_of_bundle(bundle))
          throw InvalidArgument("the end", line_of(object).substr(0, 80), end_of_bundle(bundle).dump());
        has_ended = true;
      }
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("line {} of {}: {}", number, name, error.argument()), error.value(),
                            error.expected());
    } catch (const json::exception& error) {
      fail("not JSON", error.what());
    }
  }
  if (number == 0)
    throw InvalidArgument(name, "empty", "a bundle, whose first line is " + first_line_of_bundle());
  if (!has_ended) fail("the last line, but not the end of a bundle", end_of_bundle(bundle).dump());
  return bundle;
}

BundleFile read_bundle_file(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory) throw NotFound("there is no file " + path.string());
  if (error) throw DatabaseError(fmt::format("{} cannot be read ({})", path.string(), error.message()));
  if (size > most_bytes_of_bundle)
    throw DatabaseError(fmt::format("{} has {} bytes; expected a bundle of at most {} bytes", path.string(),
                                    size, most_bytes_of_bundle));
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file || file.peek() != std::ifstream::traits_type::eof())
    throw DatabaseError(
        fmt::format("{} cannot be read to its end, or another program is writing it", path.string()));
  // Verifies these bytes: the file may change at any moment.
  BundleFile found;
  if (const auto trust = environment_variable("CE_TRUST")) {
    try {
      static_cast<void>(signer_of(text, signature_of(path), *trust));
      found.is_vouched_for = true;
    } catch (const Error& refusal) {
      throw DatabaseError(fmt::format("{} is not trusted: {}", path.string(), refusal.what()));
    }
  }
  found.bundle = read_bundle(text, path.string());
  return found;
}

void fill(Store& store, const Bundle& bundle) {
  std::vector<Measurement> measurements;
  for (const BundledDecision& decision : bundle.decisions) {
    if (decision.median_us > 0) measurements.push_back(as_measurement(decision));
    if (decision.pinned)
      store.pin({.key = decision.key,
                 .config = decision.config,
                 .why = decision.why,
                 .created_at = std::string(undated)});
  }
  store.add(measurements);
  for (const BundledBinary& binary : bundle.binaries)
    store.keep_binary(binary.compile_key, binary.image, {.compiler = "", .name = "of a bundle"});
}

}  // namespace ce::cache
