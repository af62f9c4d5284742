#include "cli/since.hpp"

#include <charconv>
#include <chrono>
#include <optional>
#include <regex>
#include <vector>

#include "ce/error.hpp"
#include "cli/analysis/populations.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

/// The numbers of a version: "0.2.0". Nothing for any other text.
std::optional<std::vector<int>> version_in(const std::string& text) {
  static const std::regex form(R"(\d{1,6}(\.\d{1,6}){0,2})");
  if (!std::regex_match(text, form)) return std::nullopt;
  std::vector<int> numbers;
  for (const char *at = text.data(), *end = at + text.size(); at < end; ++at)  // skips the dot
    at = std::from_chars(at, end, numbers.emplace_back()).ptr;
  numbers.resize(3);
  return numbers;
}

/// Whether the matched year, month and day are in the calendar.
bool is_day(const std::smatch& parts) {
  const auto number = [&](std::size_t part) { return std::stoi(parts[part].str()); };
  const std::chrono::month month(static_cast<unsigned>(number(2)));
  const std::chrono::day day(static_cast<unsigned>(number(3)));
  return (std::chrono::year(number(1)) / month / day).ok();
}

}  // namespace

std::function<bool(const cache::Measurement&)> newer_than(const std::string& since) {
  static const std::regex date(
      R"((\d{4})-(\d{2})-(\d{2})(T([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{3})?)?Z?)?)");
  std::smatch parts;
  if (std::regex_match(since, parts, date) && is_day(parts)) {
    // Texts of times sort correctly by their common prefix; a Z would sort after missing digits.
    const std::string begin = since.substr(0, since.find('Z'));
    return [begin](const cache::Measurement& measurement) { return measurement.created_at >= begin; };
  }
  const auto version = version_in(since);
  if (!version)
    throw InvalidArgument("--since", in_quotes(since),
                          "a day such as 2030-01-31, in UTC, or a version of ce such as 0.2.0");
  return [version](const cache::Measurement& measurement) {
    const auto its = version_in(tuner::software_of(measurement).library);
    return its && *its >= *version;
  };
}

}  // namespace ce::cli
