#include "cache/export.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <exception>
#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string_view>
#include <utility>

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
std::string last_line(std::size_t measurements, std::string_view identities) {
  return json{{"measurements", measurements}, {"digest", digest({identities})}}.dump();
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

void visit_export(std::istream& in, const std::string& name,
                  const std::function<void(Measurement&&)>& visit) {
  std::int64_t number = 0;
  const auto fail = [&](const std::string& found, const std::string& expected) {
    throw InvalidArgument(fmt::format("line {} of {}", number, name), found, expected);
  };
  const json first{{"format", format}, {"version", format_version}};
  std::size_t count = 0;
  std::string identities;
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
      if (line != last_line(count, identities))
        fail("no end of the lines before it: one of them, or it, was changed, added or taken out",
             last_line(count, identities));
      has_ended = true;
      continue;
    }
    Measurement measurement;
    try {
      measurement = possible_measurement(line);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("line {} of {}: {}", number, name, error.argument()), error.value(),
                            error.expected());
    } catch (const std::exception& error) {
      if (in.peek() == std::istream::traits_type::eof()) break;  // the end is missed below
      fail("no measurement", fmt::format("a JSON object ({})", error.what()));
    }
    identities += digest({line});
    ++count;
    visit(std::move(measurement));
  }
  if (in.bad()) throw InvalidArgument(name, "cut short", "a file that can be read to its end");
  if (number == 0) throw InvalidArgument(name, "empty", "an export, which begins with " + first.dump());
  if (!has_ended) fail("no end of an export, but the last line", last_line(count, identities));
}

std::vector<Measurement> read_export(std::istream& in, const std::string& name) {
  std::vector<Measurement> list;
  visit_export(in, name, [&](Measurement&& measurement) { list.push_back(std::move(measurement)); });
  return list;
}

ExportWriter::ExportWriter(std::ostream& out) : out_(out) {
  out_ << json{{"format", format}, {"version", format_version}}.dump() << '\n';
}

void ExportWriter::add(std::string_view line, std::string_view identity) {
  out_ << line << '\n';
  identities_ += identity;
  ++count_;
}

void ExportWriter::end() { out_ << last_line(count_, identities_) << '\n'; }

void write_export(std::ostream& out, std::span<const Measurement> list) {
  ExportWriter writer(out);
  for (const Measurement& measurement : list) {
    const std::string line = to_json(measurement);
    writer.add(line, identity_of_line(line));
  }
  writer.end();
}

}  // namespace ce::cache
