#include "generator/templates.hpp"

#include <fmt/format.h>

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
