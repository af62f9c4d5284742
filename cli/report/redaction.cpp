#include "cli/report/redaction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/report/html.hpp"

namespace ce::cli {
namespace {

/// A shorter name, or a number, may mean anything.
constexpr std::size_t shortest_host = 3;

bool is_alphanumeric(char c) noexcept {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}
bool is_of_host(char c) noexcept { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.'; }
/// Characters that are not ASCII count as letters.
bool is_of_path(char c) noexcept {
  return is_of_host(c) || std::string_view("+@%~=#$").find(c) != std::string_view::npos ||
         static_cast<unsigned char>(c) >= 0x80;
}

bool is_number(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// The end of the characters of a kind that start at `at`.
template <typename Kind>
std::size_t end_of(std::string_view text, std::size_t at, Kind is_of) {
  while (at < text.size() && is_of(text[at])) ++at;
  return at;
}

/// The end of an absolute path, a path in a home folder ("~/x"), or the address behind "https:" that begins at `at`;
/// `at` if none does. Configs have a slash, too, but after a letter: "block/warps=8".
std::size_t end_of_path(std::string_view text, std::size_t at) {
  const auto is_slash = [](char c) { return c == '/'; };
  if (text[at] != '/' && text[at] != '~') return at;
  if (at > 0 && text[at - 1] != '=' &&
      (is_of_path(text[at - 1]) || std::string_view("/)]").find(text[at - 1]) != std::string_view::npos))
    return at;
  const std::size_t user_end = text[at] == '~' ? end_of(text, at, is_of_path) : at;
  const std::size_t first = end_of(text, user_end, is_slash);
  if (first == user_end || first == text.size() || !is_of_path(text[first])) return at;
  return end_of(text, first, [](char c) { return is_of_path(c) || c == '/'; });
}

std::string without_paths(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_path(text, at);
    out += end == at ? text.substr(at, 1) : "[path]";
    at = std::max(end, at + 1);
  }
  return out;
}

}  // namespace

Redaction::Redaction(const std::set<std::string>& hosts) : is_on_(true) {
  std::size_t number = 0;
  for (const std::string& host : hosts) {
    if (host.empty()) continue;
    const std::string shown = fmt::format("[host {}]", ++number);
    const std::string shorter = host.substr(0, host.find('.'));
    hosts_.insert_or_assign(host, shown);
    if (shorter.size() >= shortest_host && !is_number(shorter)) hosts_.emplace(shorter, shown);
  }
}

std::string Redaction::shown_for(std::string_view name) const {
  const std::string_view shorter = name.substr(0, name.find('.'));
  for (const std::string_view known : {name, shorter})
    if (const auto host = hosts_.find(known); host != hosts_.end()) return host->second;
  return std::string(name);
}

std::string Redaction::text(std::string_view whole) const {
  if (!is_on_) return std::string(whole);
  if (const auto host = hosts_.find(whole); host != hosts_.end()) return host->second;
  const std::string left = without_paths(whole);
  std::string out;
  for (std::size_t at = 0; at < left.size();) {
    std::size_t end = end_of(left, at, is_of_host);
    while (end > at && left[end - 1] == '.') --end;  // the dot that ends the sentence
    out += end == at ? left.substr(at, 1) : shown_for(std::string_view(left).substr(at, end - at));
    at = std::max(end, at + 1);
  }
  return out;
}

std::string Redaction::html(std::string_view text) const { return escaped(this->text(text)); }

std::string Redaction::file(const std::string& path) const {
  return is_on_ ? text(std::filesystem::path(path).filename().string()) : path;
}

}  // namespace ce::cli
