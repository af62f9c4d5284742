#include "cache/export.hpp"

#include <fmt/format.h>

#include <exception>
#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string_view>

#include "cache/codec.hpp"
#include "ce/base/digest.hpp"
#include "ce/base/error.hpp"

namespace ce::cache {
namespace {

using nlohmann::json;

constexpr const char* format = "ce measurements";
constexpr int format_version = 1;

/// Of no measurement: the names of an object are in order.
constexpr std::string_view beginning_of_end = "{\"digest\":";

/// What an export ends with.
std::string last_line(const std::vector<std::string>& identities) {
  std::string all;
  for (const std::string& identity : identities) all += identity;
  return json{{"measurements", identities.size()}, {"digest", digest({all})}}.dump();
}

}  // namespace

std::vector<Measurement> read_export(std::istream& in, const std::string& name) {
  std::int64_t number = 0;
  const auto fail = [&](const std::string& found, const std::string& expected) {
    throw InvalidArgument(fmt::format("line {} of {}", number, name), found, expected);
  };
  const json first{{"format", format}, {"version", format_version}};
  std::vector<Measurement> list;
  std::vector<std::string> identities;
  bool has_ended = false;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (has_ended) fail("behind the end of the export", fmt::format("nothing after line {}", number - 1));
    if (number == 1) {
      if (line != first.dump()) fail("no beginning of an export", first.dump());
      continue;
    }
    if (line.starts_with(beginning_of_end)) {
      // It knows that a value was changed, but not of which line.
      if (line != last_line(identities))
        fail("no end of the lines before it: one of them, or it, was changed, added or taken out",
             last_line(identities));
      has_ended = true;
      continue;
    }
    try {
      list.push_back(from_json(line));
    } catch (const std::exception& error) {
      if (in.peek() == std::istream::traits_type::eof()) break;  // the end is missed below
      fail("no measurement", fmt::format("an object of all its fields ({})", error.what()));
    }
    identities.push_back(digest({line}));
  }
  if (in.bad()) throw InvalidArgument(name, "cut short", "a file that can be read to its end");
  if (number == 0) throw InvalidArgument(name, "empty", "an export, which begins with " + first.dump());
  if (!has_ended) fail("no end of an export, but the last line", last_line(identities));
  return list;
}

void write_export(std::ostream& out, std::span<const Measurement> list) {
  out << json{{"format", format}, {"version", format_version}}.dump() << '\n';
  std::vector<std::string> identities;
  for (const Measurement& measurement : list) {
    out << to_json(measurement) << '\n';
    identities.push_back(identity_of(measurement));
  }
  out << last_line(identities) << '\n';
}

}  // namespace ce::cache
