#include "generator/templates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <sstream>

#include "ce/error.hpp"
#include "templates/embedded.hpp"

namespace ce::generator {
namespace {

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
  throw NotFound(fmt::format("there is no template {}", file));
}

std::map<std::string, std::string> included_files(std::string_view text) {
  std::map<std::string, std::string> files;
  add_included(text, files);
  return files;
}

std::string without_comments(std::string_view text) {
  std::string code;
  code.reserve(text.size());
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  const auto is_operator = [](char c) {
    return std::string_view("+-*/%<>=&|^!:.#").find(c) != std::string_view::npos;
  };
  char gap = 0;  // what has been left out since the last character: nothing, a space, or the end of a line
  bool directive = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i);
    if (rest.starts_with("//")) {
      i += std::min(rest.find('\n'), rest.size()) - 1;
      continue;
    }
    if (rest.starts_with("/*")) {
      const std::size_t end = rest.find("*/");
      i += end == std::string_view::npos ? rest.size() : end + 1;
      if (gap == 0) gap = ' ';
      continue;
    }
    const char c = text[i];
    if (c == '\n' || c == ' ' || c == '\t') {
      if (gap != '\n') gap = c == '\n' ? '\n' : ' ';
      continue;
    }
    // A directive needs a line of its own. Elsewhere a space separates two words, or two operators that could be one.
    const bool starts_line = code.empty() || gap == '\n', continues = code.ends_with('\\');
    if (starts_line && (directive || c == '#')) {
      if (!code.empty()) code += '\n';
    } else if (gap != 0 && !code.empty()) {
      const char last = code.back();
      if (directive || (is_word(c) && is_word(last)) || (is_operator(c) && is_operator(last))) code += ' ';
    }
    if (starts_line) directive = c == '#' || (directive && continues);
    gap = 0;
    code += c;
    if (c != '"' && c != '\'') continue;
    if (c == '\'' && code.size() > 1 && is_word(code[code.size() - 2]))
      continue;  // between digits of a number
    for (++i; i < text.size() && text[i] != '\n'; ++i) {
      code += text[i];
      if (text[i] == c) break;
      if (text[i] == '\\' && i + 1 < text.size()) code += text[++i];
    }
  }
  return code;
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
