#include "base/tags.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/environment.hpp"
#include "ce/error.hpp"

namespace ce {
namespace {

constexpr std::size_t most_tags = 32, longest_name = 64, longest_value = 256;

bool may_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.';
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= longest_name && std::all_of(text.begin(), text.end(), may_name);
}

bool is_value(std::string_view text) {
  return !text.empty() && text.size() <= longest_value && std::all_of(text.begin(), text.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
}

}  // namespace

Tags parse_tags(std::string_view argument, std::string_view text) {
  const auto refuse = [&](std::string_view expected) {
    throw InvalidArgument(argument, fmt::format("\"{}\"", text), expected);
  };
  Tags tags;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view tag = text.substr(begin, end - begin);
    const std::size_t equals = tag.find('=');
    if (equals == std::string_view::npos || !is_name(tag.substr(0, equals)) ||
        !is_value(tag.substr(equals + 1)))
      refuse(
          "name=value, or several of them separated by commas: a name has 1 to 64 letters, digits, '_', '-' "
          "and '.', a value has 1 to 256 printable ASCII characters without comma, quotation mark and "
          "backslash");
    if (!tags.emplace(tag.substr(0, equals), tag.substr(equals + 1)).second)
      refuse(fmt::format("{} once", tag.substr(0, equals)));
    if (tags.size() > most_tags) refuse(fmt::format("{} tags at most", most_tags));
    begin = end + 1;
  }
  return tags;
}

Tags tags_of_environment() {
  constexpr const char* variable = "CE_TAG";
  const auto text = environment_variable(variable);
  return text ? parse_tags(variable, *text) : Tags{};
}

std::string environment_name_of_tag(std::string_view name) { return fmt::format("tag.{}", name); }

}  // namespace ce
