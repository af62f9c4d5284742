#include "tests/hygiene/include_rules.hpp"

#include <algorithm>
#include <regex>
#include <set>
#include <sstream>

namespace ce::hygiene {
namespace {

/// A room, or a part of one with rules of its own, and what it may include besides itself and ce/base.
struct Room {
  std::string_view name;
  std::vector<std::string_view> below;
};

// The first match decides, so parts of a room stand before the room.
const std::vector<Room> rooms{
    {"ce/base", {}},
    {"templates", {}},
    {"cache", {}},
    {"generator", {"templates"}},
    {"runtime/host", {"runtime", "templates"}},
    {"runtime", {"runtime/host"}},
    {"tuner", {"cache", "runtime", "runtime/host", "generator", "templates"}},
    {"ce", {"tuner", "cache", "runtime", "runtime/host", "generator", "templates"}},
    {"include", {}},
    {"c", {"ce", "include"}},
    {"examples", {"ce"}},
    {"cli", {"ce", "tuner", "cache", "runtime", "runtime/host", "generator", "templates"}},
};

bool is_in(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

const Room* find_room(std::string_view path) {
  const auto found = std::ranges::find_if(rooms, [&](const Room& room) { return is_in(path, room.name); });
  return found == rooms.end() ? nullptr : &*found;
}

bool may_include(std::string_view includer, std::string_view included) {
  const Room* from = find_room(includer);
  const Room* to = find_room(included);
  if (from == nullptr) return true;
  // In no room, so beside the includer: templates name each other without a folder.
  if (to == nullptr) return included.find('/') == std::string_view::npos;
  return from == to || to->name == "ce/base" || std::ranges::find(from->below, to->name) != from->below.end();
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
  const bool is_public = public_headers.contains(std::string(path));
  std::vector<std::string> violations;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::smatch match;
    if (!std::regex_search(line, match, include)) continue;
    const std::string header = match[2];
    // A room is a room in angle brackets too.
    const bool foreign = match[1] == "<" && find_room(header) == nullptr;
    const bool allowed = is_public ? (foreign && is_standard(header)) || public_headers.contains(header)
                                   : foreign || may_include(path, header);
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
