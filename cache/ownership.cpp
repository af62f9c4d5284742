#include "cache/ownership.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "cache/file_system.hpp"

namespace ce::cache {
namespace {

namespace fs = std::filesystem;

/// Whether /etc/group lists other members of a group than its owner. True if that cannot be read.
bool has_members(gid_t group) {
  std::ifstream groups("/etc/group");
  if (!groups) return true;
  const std::string number = fmt::format(":{}:", group);
  for (std::string line; std::getline(groups, line);)
    if (const std::size_t at = line.find(number, line.find(':') + 1);
        at != std::string::npos && at + number.size() < line.size())
      return true;
  return false;
}

/// Whether only root or this user is in the group; by convention a user's own group has the user's id.
bool is_group_of_one(gid_t group) {
  return group == 0 || (group == ::geteuid() && group == ::getegid() && !has_members(group));
}

std::string belongs(const fs::path& path, uid_t user) {
  return fmt::format("{} belongs to user {}", path.string(), user);
}

/// The other writer of one path; does not follow links.
std::string other_writer(const fs::path& path, const struct stat& status) {
  if (status.st_uid != 0 && status.st_uid != ::geteuid()) return belongs(path, status.st_uid);
  if (S_ISLNK(status.st_mode)) return {};
  const bool by_others =
      (status.st_mode & S_IWOTH) != 0 || ((status.st_mode & S_IWGRP) != 0 && !is_group_of_one(status.st_gid));
  const bool is_sticky = S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX) != 0;
  return by_others && !is_sticky ? fmt::format("other users can write {}", path.string()) : "";
}

std::string cannot_look_at(const fs::path& path) {
  return fmt::format("{} cannot be examined ({})", path.string(), std::generic_category().message(errno));
}

void push_parts(std::vector<fs::path>& rest, const fs::path& path) {
  const fs::path relative = path.relative_path();
  const std::vector<fs::path> parts(relative.begin(), relative.end());
  rest.insert(rest.end(), parts.rbegin(), parts.rend());
}

/// Every folder, link and file on the path, in the order in which the kernel resolves it.
std::string other_writer_on_the_way(const fs::path& path) {
  constexpr int most_links = 40;
  int links = 0;
  fs::path at = "/";
  std::vector<fs::path> rest;  // the next one comes last
  push_parts(rest, path);
  struct stat status {};
  if (::lstat(at.c_str(), &status) != 0) return cannot_look_at(at);
  if (std::string found = other_writer(at, status); !found.empty()) return found;
  while (!rest.empty()) {
    const fs::path part = rest.back();
    rest.pop_back();
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      at = at.parent_path();
      continue;
    }
    const fs::path next = at / part;
    if (::lstat(next.c_str(), &status) != 0) return cannot_look_at(next);
    if (std::string found = other_writer(next, status); !found.empty()) return found;
    if (!S_ISLNK(status.st_mode)) {
      at = next;
      continue;
    }
    std::error_code error;
    const fs::path target = fs::read_symlink(next, error);
    if (error || ++links > most_links) return cannot_look_at(next);
    if (target.is_absolute()) at = "/";
    push_parts(rest, target);
  }
  return {};
}

}  // namespace

std::string other_writer_of(const fs::path& database) {
  std::error_code error;
  const fs::path path = fs::absolute(database, error);
  if (error) return cannot_look_at(database);
  if (std::string found = other_writer_on_the_way(path); !found.empty()) return found;
  const std::string file = real_path(path).string();
  for (const char* suffix : files_of_sqlite) {
    const fs::path beside = file + suffix;
    struct stat status {};
    if (::lstat(beside.c_str(), &status) != 0) continue;
    if (!S_ISREG(status.st_mode)) return fmt::format("{} is not a regular file", beside.string());
    if (std::string found = other_writer(beside, status); !found.empty()) return found;
  }
  return {};
}

std::string foreign_log_of(const fs::path& database) {
  const std::string file = real_path(database).string();
  struct stat of_database {};
  if (::stat(file.c_str(), &of_database) != 0 || (of_database.st_mode & (S_IWGRP | S_IWOTH)) != 0) return {};
  for (const char* suffix : files_of_sqlite) {
    const fs::path beside = file + suffix;
    struct stat status {};
    if (::lstat(beside.c_str(), &status) != 0) continue;
    if (status.st_uid != of_database.st_uid && status.st_uid != 0) return belongs(beside, status.st_uid);
  }
  return {};
}

}  // namespace ce::cache
