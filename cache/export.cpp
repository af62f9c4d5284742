#include "cache/export.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <exception>
#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string_view>

#include "base/digest.hpp"
#include "cache/codec.hpp"
#include "cache/possible.hpp"
#include "ce/error.hpp"

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

constexpr std::size_t longest_line = std::size_t{16} << 20;

/// The next line, or of a longer one as much as shows that.
bool next_line(std::istream& in, std::string& line) {
  std::array<char, std::size_t{1} << 14> part{};
  line.clear();
  while (line.size() <= longest_line) {
    in.getline(part.data(), part.size());
    const auto count = static_cast<std::size_t>(in.gcount());
    const bool is_full = in.fail() && !in.eof() && !in.bad() && count > 0;
    const bool has_newline = in.good();
    line.append(part.data(), has_newline ? count - 1 : count);
    if (!is_full) return has_newline || !line.empty();
    in.clear();
  }
  return true;
}

/// \throws InvalidArgument naming the field, std::exception for what is no JSON
Measurement possible_measurement(const std::string& line) {
  Measurement measurement = from_json(line);
  expect_possible(measurement);
  return measurement;
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
  for (std::string line; next_line(in, line);) {
    ++number;
    if (line.size() > longest_line) fail("too long", fmt::format("{} bytes at most", longest_line));
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
      list.push_back(possible_measurement(line));
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("line {} of {}: {}", number, name, error.argument()), error.value(),
                            error.expected());
    } catch (const std::exception& error) {
      if (in.peek() == std::istream::traits_type::eof()) break;  // the end is missed below
      fail("no measurement", fmt::format("a JSON object ({})", error.what()));
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
