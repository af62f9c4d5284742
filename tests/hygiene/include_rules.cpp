#include "tests/hygiene/include_rules.hpp"

#include <algorithm>
#include <regex>
#include <set>
#include <sstream>

namespace ce::hygiene {
namespace {

/// A room, or a part of one with rules of its own, and what it may include besides itself, base and foundation().
struct Room {
  std::string_view name;
  std::vector<std::string_view> below;
};

// The first match decides, so parts of a room stand before the room.
const std::vector<Room> rooms{
    {"include/ce", {}},
    {"base", {}},
    {"templates/device", {}},
    {"templates", {}},
    {"cache", {}},
    {"generator", {"templates"}},
    {"runtime/host", {"runtime", "templates", "templates/device"}},
    {"runtime", {"runtime/host", "templates/device"}},
    {"tuner", {"cache", "runtime", "runtime/host", "generator", "templates", "templates/device"}},
    {"ce", {"include/ce", "tuner", "cache", "runtime", "runtime/host", "generator", "templates"}},
    {"c", {"include/ce", "ce"}},
    {"python/csrc", {"include/ce", "c"}},
    {"examples", {"include/ce"}},
    {"cli", {"include/ce", "ce", "tuner", "cache", "runtime", "runtime/host", "generator", "templates"}},
};

/// Public headers that every room may include: also the operations, whose fields the generator's tables name. The others
/// say what else can be asked of the library: they are for rooms that answer or ask.
bool is_foundation(std::string_view header) {
  static const std::set<std::string_view> foundation{
      "ce/dtype.hpp",      "ce/error.hpp", "ce/export.hpp",          "ce/language.hpp", "ce/log.hpp",
      "ce/operations.hpp", "ce/ranks.hpp", "ce/source_location.hpp", "ce/version.hpp"};
  return foundation.contains(header);
}

/// How high a file of templates/ stands, by its path there: what it includes stands no higher. Layouts, which the
/// generator shares, lie beside the folders, at the height of row/.
int height_of_template(std::string_view path) {
  const auto is_below = [&](std::string_view folder) { return path.starts_with(folder); };
  return is_below("device/")       ? 0
         : is_below("operations/") ? 2
         : is_below("kernels/")    ? 3
         : is_below("linear/")     ? 4
                                   : 1;
}

bool is_in(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

const Room* find_room(std::string_view path) {
  const auto found = std::ranges::find_if(rooms, [&](const Room& room) { return is_in(path, room.name); });
  return found == rooms.end() ? nullptr : &*found;
}

bool may_include(std::string_view includer, std::string_view included, bool is_public) {
  const Room* from = find_room(includer);
  const Room* to = is_public || included == "ce/ce.h" ? find_room("include/" + std::string(included))
                                                      : find_room(included);
  if (from == nullptr || is_foundation(included)) return true;
  // In no room, so beside the includer.
  if (to == nullptr && from->name.starts_with("templates"))
    return height_of_template(included) <=
           height_of_template(includer.substr(std::string_view("templates/").size()));
  if (to == nullptr) return included.find('/') == std::string_view::npos;
  return from == to || to->name == "base" || std::ranges::find(from->below, to->name) != from->below.end();
}

/// Headers of the C++ standard library have neither a folder nor an extension.
bool is_standard(std::string_view header) { return header.find_first_of("./") == std::string_view::npos; }

}  // namespace

std::string_view room_of(std::string_view path) {
  const Room* room = find_room(path);
  return room == nullptr ? std::string_view() : room->name;
}

std::vector<std::string> check_includes(std::string_view path, std::string_view text,
                                        const std::set<std::string>& public_headers) {
  static const std::regex include(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  const bool is_public = path.starts_with("include/") && public_headers.contains(std::string(path.substr(8)));
  std::vector<std::string> violations;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::smatch match;
    if (!std::regex_search(line, match, include)) continue;
    const std::string header = match[2];
    // A room is a room in angle brackets too.
    const bool foreign = match[1] == "<" && find_room(header) == nullptr && !public_headers.contains(header);
    const bool allowed = is_public ? (foreign && is_standard(header)) || public_headers.contains(header)
                                   : foreign || may_include(path, header, public_headers.contains(header));
    if (allowed) continue;
    std::ostringstream violation;
    violation << path << ':' << number << ": " << (is_public ? "a public header" : std::string(room_of(path)))
              << " must not include " << header;
    violations.push_back(violation.str());
  }
  return violations;
}

std::vector<std::filesystem::path> room_files(const std::filesystem::path& top) {
  static const std::set<std::string> extensions{".hpp", ".cpp", ".cuh", ".in", ".h", ".c"};
  std::set<std::filesystem::path> files;
  for (const Room& room : rooms) {
    if (!std::filesystem::is_directory(top / room.name)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(top / room.name))
      if (entry.is_regular_file() && extensions.contains(entry.path().extension().string()))
        files.insert(entry.path().lexically_relative(top));
  }
  return {files.begin(), files.end()};
}

}  // namespace ce::hygiene
