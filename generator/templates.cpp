#include "generator/templates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <sstream>

#include "base/made_once.hpp"
#include "ce/error.hpp"
#include "templates/embedded.hpp"

namespace ce::generator {
namespace {

constexpr std::size_t most_files = 128;

/// Kinds of characters of C++, as without_comments() tells them apart.
enum Kind : std::uint8_t { blank = 1, word = 2, sign = 4, special = 8 };
constexpr auto kinds = [] {
  std::array<std::uint8_t, 256> all{};
  const auto add = [&](std::string_view characters, std::uint8_t kind) {
    for (const char c : characters) all[static_cast<unsigned char>(c)] |= kind;
  };
  add(" \t\n", blank);
  add("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", word);
  add("+-*/%<>=&|^!:.#", sign);
  add("/\"'", special);  // may begin a comment or a literal
  return all;
}();
constexpr bool is(char c, unsigned kind) { return (kinds[static_cast<unsigned char>(c)] & kind) != 0; }

NotFound no_template(std::string_view file) { return NotFound(fmt::format("there is no template {}", file)); }

template <class Visit>
void for_each_line(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    visit(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

/// The NAME of a line `#include "NAME"`.
std::optional<std::string_view> included_name(std::string_view line) {
  constexpr std::string_view start = "#include \"";
  if (!line.starts_with(start)) return std::nullopt;
  line.remove_prefix(start.size());
  return line.substr(0, line.find('"'));
}

void add_included(std::string_view text, std::map<std::string, std::string>& files) {
  for_each_line(text, [&](std::string_view line) {
    const auto file = included_name(line);
    if (!file || files.contains(std::string(*file))) return;
    files.emplace(*file, template_text(*file));
    add_included(template_text(*file), files);
  });
}

}  // namespace

std::string_view template_text(std::string_view file) {
  for (const templates::File& known : templates::files())
    if (known.name == file) return known.text;
  throw no_template(file);
}

std::map<std::string, std::string> included_files(std::string_view text) {
  std::map<std::string, std::string> files;
  add_included(text, files);
  return files;
}

std::string without_comments(std::string_view text) {
  std::string code(text.size() + 1,
                   '\0');  // a separator is never longer than what it replaces
  char* out = code.data();
  const char *next = text.data(), *const end = next + text.size();
  const auto last = [&] { return out[-1]; };
  char gap = 0;  // what was skipped since the last character: nothing, a space, or the end of a line
  bool directive = false;
  while (next != end) {
    const char c = *next;
    if (is(c, blank)) {
      if (gap != '\n') gap = c == '\n' ? '\n' : ' ';
      ++next;
      continue;
    }
    if (c == '/' && end - next > 1 && next[1] == '/') {
      next = std::find(next, end, '\n');
      continue;
    }
    if (c == '/' && end - next > 1 && next[1] == '*') {
      const std::string_view rest(next + 2, static_cast<std::size_t>(end - next - 2));
      const std::size_t length = rest.find("*/");
      next = length == std::string_view::npos ? end : next + length + 4;
      if (gap == 0) gap = ' ';
      continue;
    }
    // A directive needs a line of its own. Elsewhere a space separates two words, or two operators that would otherwise
    // merge.
    const bool is_first = out == code.data(), starts_line = is_first || gap == '\n';
    const bool continues = !is_first && last() == '\\';
    if (starts_line && (directive || c == '#')) {
      if (!is_first) *out++ = '\n';
    } else if (gap != 0 && !is_first) {
      if (directive || (is(c, word) && is(last(), word)) || (is(c, sign) && is(last(), sign))) *out++ = ' ';
    }
    if (starts_line) directive = c == '#' || (directive && continues);
    gap = 0;
    const bool after_word = out != code.data() && is(last(), word);
    *out++ = c;
    ++next;
    if (c == '"' || (c == '\'' && !after_word)) {  // after a word it separates digits of a number
      while (next != end && *next != '\n') {
        *out++ = *next;
        if (*next++ == c) break;
        if (last() == '\\' && next != end) *out++ = *next++;
      }
      continue;
    }
    while (next != end && !is(*next, blank | special)) *out++ = *next++;
  }
  code.resize(static_cast<std::size_t>(out - code.data()));
  return code;
}

bool is_template(std::string_view file, std::string_view text) noexcept {
  return std::ranges::any_of(templates::files(), [&](const templates::File& known) {
    return known.name == file && known.text == text;
  });
}

std::string_view template_code(std::string_view file) {
  static constinit std::array<MadeOnce<std::string>, most_files> known;
  const std::span<const templates::File> files = templates::files();
  const auto found = std::ranges::find(files, file, &templates::File::name);
  if (found == files.end()) throw no_template(file);
  return known.at(static_cast<std::size_t>(found - files.begin())).get([&] {
    return without_comments(found->text);
  });
}

std::vector<AxisLine> axis_lines(std::string_view text) {
  constexpr std::string_view start = "// axis ";
  std::vector<AxisLine> lines;
  for_each_line(text, [&](std::string_view line) {
    if (!line.starts_with(start)) return;
    std::istringstream words{std::string(line.substr(start.size()))};
    AxisLine axis;
    std::string equals;
    words >> axis.axis >> equals;
    for (std::string value; words >> value;) axis.values.push_back(value);
    if (equals != "=" || axis.values.empty())
      throw InvalidArgument("template line", fmt::format("\"{}\"", line), "// axis NAME = value value ...");
    lines.push_back(std::move(axis));
  });
  return lines;
}

}  // namespace ce::generator
