#include "generator/config.hpp"

#include <fmt/format.h>

#include <charconv>

#include "ce/error.hpp"
#include "generator/variant.hpp"

namespace ce::generator {
namespace {

constexpr std::array<Axis, 13> all_axes{{
    {"warps", &Config::warps, 32, {}},
    {"reducers", &Config::reducers, 32, {}},
    {"vec", &Config::vec, 16, {}},
    {"lanes", &Config::lanes, 32, {}},
    {"rows", &Config::rows, 1024, {}},
    {"tile", &Config::tile, 65536, {}},
    {"unroll", &Config::unroll, 16, {}},
    {"split", &Config::split, 1024, {}},
    {"cluster", &Config::cluster, 16, {}},
    {"stages", &Config::stages, 64, {}},
    {"hold", &Config::hold, 64, {}},
    {"load", &Config::load, 3, load_names},
    {"store", &Config::store, 3, store_names},
}};

/// Removes the text up to the separator from the front, and returns it.
std::string_view take(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

}  // namespace

std::span<const Axis> axes() noexcept { return all_axes; }

const Axis* find_axis(std::string_view name) noexcept {
  for (const Axis& axis : all_axes)
    if (axis.name == name) return &axis;
  return nullptr;
}

std::string value_text(const Axis& axis, int value) {
  return axis.words.empty() ? fmt::to_string(value)
                            : std::string(axis.words[static_cast<std::size_t>(value)]);
}

std::optional<int> parse_value(const Axis& axis, std::string_view text) noexcept {
  for (std::size_t i = 0; i < axis.words.size(); ++i)
    if (axis.words[i] == text) return static_cast<int>(i);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (!axis.words.empty() || error != std::errc() || end != text.data() + text.size() || value < 1 ||
      value > axis.most)
    return std::nullopt;
  return value;
}

std::string to_text(const Config& config) {
  std::string text = config.variant;
  char separator = '/';
  for (const Axis* axis : variant(config.variant).axes()) {
    text.append(1, separator)
        .append(axis->name)
        .append(1, '=')
        .append(value_text(*axis, config.*axis->value));
    separator = ',';
  }
  return text;
}

Config parse_config(std::string_view text) {
  const std::string_view given = text;
  const std::string whole = fmt::format("\"{}\"", text);
  Config config{.variant = std::string(take(text, '/'))};
  const std::vector<const Axis*>& expected = variant(config.variant).axes();
  std::size_t found = 0;
  for (; !text.empty(); ++found) {
    std::string_view value = take(text, ',');
    const std::string_view name = take(value, '=');
    if (found == expected.size() || expected[found]->name != name)
      throw InvalidArgument("config", whole,
                            found == expected.size()
                                ? fmt::format("nothing after \"{}\"", expected.back()->name)
                                : fmt::format("\"{}=\" instead of \"{}\"", expected[found]->name, name));
    const auto parsed = parse_value(*expected[found], value);
    if (!parsed)
      throw InvalidArgument("config", whole, fmt::format("a value of \"{}\", not \"{}\"", name, value));
    config.*expected[found]->value = *parsed;
  }
  if (found < expected.size())
    throw InvalidArgument("config", whole, fmt::format("\"{}=\" too", expected[found]->name));
  if (to_text(config) != given)
    throw InvalidArgument("config", whole, fmt::format("\"{}\"", to_text(config)));
  return config;
}

}  // namespace ce::generator
