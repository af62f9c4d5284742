#include "cli/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "ce/error.hpp"

namespace ce::cli {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 10> units{{
    {"", 1},
    {"B", 1},
    {"KiB", 1024.0},
    {"MiB", 1024.0 * 1024},
    {"GiB", 1024.0 * 1024 * 1024},
    {"TiB", 1024.0 * 1024 * 1024 * 1024},
    {"kB", 1e3},
    {"MB", 1e6},
    {"GB", 1e9},
    {"TB", 1e12},
}};

}  // namespace

std::string in_quotes(std::string_view text) { return fmt::format("\"{}\"", text); }

std::int64_t parse_size(std::string_view argument, std::string_view text) {
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  const auto* known =
      std::find_if(units.begin(), units.end(), [unit](const auto& u) { return u.first == unit; });
  const double bytes = known == units.end() ? 0 : std::floor(number * known->second);
  if (error != std::errc() || !(bytes >= 1) || bytes > 1e18)
    throw InvalidArgument(argument, in_quotes(text), "a size such as 4GiB, 512MiB or 1000000000");
  return static_cast<std::int64_t>(bytes);
}

double parse_duration(std::string_view argument, std::string_view text) {
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const double seconds = number * (unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0);
  if (error != std::errc() || !(seconds > 0) || seconds > 1e9)
    throw InvalidArgument(argument, in_quotes(text), "a time such as 90s, 10m or 1.5h");
  return seconds;
}

std::int64_t parse_count(std::string_view argument, std::string_view text, std::int64_t least,
                         std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw InvalidArgument(argument, in_quotes(text),
                          fmt::format("a whole number from {} to {}", least, most));
  return value;
}

float parse_amount(std::string_view argument, std::string_view text) {
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    throw InvalidArgument(argument, in_quotes(text), "a number that f32 can hold, such as 0.1 or 1e-4");
  return value;
}

std::vector<std::string> split_list(std::string_view argument, const std::vector<std::string>& texts) {
  std::vector<std::string> parts;
  for (const std::string& text : texts)
    for (std::size_t start = 0; start <= text.size();) {
      const std::size_t end = std::min(text.find(',', start), text.size());
      const std::string part = text.substr(start, end - start);
      if (part.empty()) throw InvalidArgument(argument, in_quotes(text), "a value between any two commas");
      if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
      start = end + 1;
    }
  return parts;
}

std::string time_text(double microseconds) {
  if (microseconds < 100) return fmt::format("{:.2f} us", microseconds);
  if (microseconds < 10'000) return fmt::format("{:.1f} us", microseconds);
  if (microseconds < 1e6) return fmt::format("{:.2f} ms", microseconds / 1e3);
  return fmt::format("{:.2f} s", microseconds / 1e6);
}

std::string throughput_text(double gbs) { return fmt::format("{:.{}f}", gbs, gbs < 10 ? 2 : 0); }

std::string size_text(std::int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 2;
  for (; value >= 1024 && unit < 5; ++unit) value /= 1024;
  return fmt::format("{:.1f} {}", value, units[unit].first);
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::lround(std::max(0.0, seconds)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string percent_text(double share) { return fmt::format("{:.1f}%", 100 * share); }

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace ce::cli
