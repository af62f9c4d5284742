#pragma once
/// \file
/// Which room may include which, and the check of one file against it.

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ce::hygiene {

/// The room of a path or include text relative to the top of the project: "cache", "ce/base", "runtime/host"
/// where a part of a room has rules of its own; empty for what is in no room.
[[nodiscard]] std::string_view room_of(std::string_view path);

/// Lines such as "cache/keys.cpp:3: cache must not include runtime/device.hpp", one for each include that
/// runs up, or sideways between rooms, and one for each include of a public header that is neither public nor
/// standard. \param path  relative to the top of the project \param public_headers  those that are installed,
/// relative to the top of the project
[[nodiscard]] std::vector<std::string> check_includes(std::string_view path, std::string_view text,
                                                      const std::set<std::string>& public_headers);

/// C++ files of all rooms below `top`, relative to it, sorted.
[[nodiscard]] std::vector<std::filesystem::path> room_files(const std::filesystem::path& top);

}  // namespace ce::hygiene
