#include "cache/export.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <future>
#include <istream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>
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

/// No measurement begins like this: the names of an object are sorted.
constexpr std::string_view beginning_of_end = "{\"digest\":";

/// The last line of an export.
std::string last_line(std::size_t measurements, std::string_view identities) {
  return json{{"measurements", measurements}, {"digest", digest({identities})}}.dump();
}

constexpr std::size_t longest_line = std::size_t{16} << 20;

/// Splits a stream into lines; reads in large blocks.
class LineReader {
 public:
  explicit LineReader(std::istream& in) : in_(in) {}

  /// The next line; of a line beyond the limit, enough bytes to recognise that. \returns false at the end
  bool next(std::string_view& line) {
    for (;;) {
      const std::string_view seen(bytes_.get() + begin_, end_ - begin_);
      const std::size_t length = seen.find('\n', searched_);
      if (length != std::string_view::npos || seen.size() > longest_line) {
        line = seen.substr(0, length);
        skip(std::min(length, seen.size() - 1) + 1);
        return true;
      }
      searched_ = seen.size();
      if (read()) continue;
      line = {bytes_.get() + begin_, end_ - begin_};
      skip(line.size());
      return !line.empty();
    }
  }
  /// Whether the last line that was read ends the stream.
  [[nodiscard]] bool is_at_end() { return begin_ == end_ && in_.peek() == std::istream::traits_type::eof(); }
  /// The memory of that line; it stays valid as long as the caller keeps this pointer.
  [[nodiscard]] const std::shared_ptr<char[]>& bytes() const noexcept { return bytes_; }

 private:
  static constexpr std::size_t bytes_at_once = std::size_t{1} << 20;

  void skip(std::size_t count) {
    begin_ += count;
    searched_ = 0;
  }
  /// Reads more bytes behind the remaining ones, which move to the new buffer. \returns false at the end of the stream
  bool read() {
    const std::size_t left = end_ - begin_;
    std::shared_ptr<char[]> bytes(new char[left + bytes_at_once]);
    std::copy_n(bytes_.get() + begin_, left, bytes.get());
    in_.read(bytes.get() + left, bytes_at_once);
    bytes_ = std::move(bytes);
    begin_ = 0;
    end_ = left + static_cast<std::size_t>(in_.gcount());
    return end_ > left;
  }

  std::istream& in_;
  std::shared_ptr<char[]> bytes_;
  std::size_t begin_ = 0, end_ = 0;  ///< range of bytes that are not returned yet
  std::size_t searched_ = 0;         ///< number of these bytes known to contain no line end
};

/// A line of an export, and its measurement or why it has none.
struct Line {
  std::int64_t number;
  std::string_view text;
  std::optional<ParsedMeasurement> measurement = {};
  std::string digest = {};
  std::string identity = {};  ///< if it is not the line's digest
  std::exception_ptr error = {};
};

/// \param written  buffer for a line
void parse(Line& line, std::string& written) {
  try {
    const MeasurementView& measurement = line.measurement.emplace(line.text).view();
    expect_possible(measurement);
    line.digest = digest({line.text});
    written.clear();
    append_json(written, measurement);
    if (written != line.text) line.identity = identity_of_line(written);
  } catch (const std::exception&) {
    line.error = std::current_exception();
  }
}

/// Parses lines on several threads, some lines ahead of the caller, and returns them in order.
class ParsedAhead {
 public:
  explicit ParsedAhead(std::function<void(const Line&)> take) : take_(std::move(take)) {}

  /// \param bytes  the memory of the line
  void add(Line&& line, const std::shared_ptr<char[]>& bytes) {
    if (next_.bytes != bytes || next_.lines.size() == lines_at_once) begin(std::launch::async);
    next_.bytes = bytes;
    next_.lines.push_back(std::move(line));
    if (ahead_.size() > threads_) take_first();
  }
  /// Parses all added lines.
  void finish() {
    begin(std::launch::deferred);  // small batches are not worth a thread
    while (!ahead_.empty()) take_first();
  }

 private:
  static constexpr std::size_t lines_at_once = 1024;

  struct Lines {
    std::shared_ptr<char[]> bytes = {};
    std::vector<Line> lines = {};
  };

  void begin(std::launch when) {
    if (next_.lines.empty()) return;
    ahead_.push_back(std::async(when, [lines = std::exchange(next_, {})]() mutable {
      std::string written;
      for (Line& line : lines.lines) parse(line, written);
      return std::move(lines);
    }));
  }
  void take_first() {
    const Lines lines = ahead_.front().get();
    ahead_.pop_front();
    for (const Line& line : lines.lines) take_(line);
  }

  const std::function<void(const Line&)> take_;
  const std::size_t threads_ = std::clamp(std::thread::hardware_concurrency(), 1U, 8U);
  Lines next_;
  std::deque<std::future<Lines>> ahead_;
};

}  // namespace

void visit_export(std::istream& in, const std::string& name,
                  const std::function<void(const MeasurementView&, std::string_view identity)>& visit) {
  std::int64_t number = 0;
  const auto fail = [&](const std::string& found, const std::string& expected) {
    throw InvalidArgument(fmt::format("line {} of {}", number, name), found, expected);
  };
  const json first{{"format", format}, {"version", format_version}};
  std::size_t count = 0;
  std::string digests;
  bool has_ended = false;
  LineReader reader(in);
  ParsedAhead lines([&](const Line& line) {
    try {
      if (line.error) std::rethrow_exception(line.error);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("line {} of {}: {}", line.number, name, error.argument()),
                            error.value(), error.expected());
    } catch (const std::exception& error) {
      const bool is_cut = line.number == number && reader.is_at_end();
      if (is_cut) return;  // the missing end is reported below
      throw InvalidArgument(fmt::format("line {} of {}", line.number, name), "not a measurement",
                            fmt::format("a JSON object ({})", error.what()));
    }
    digests += line.digest;
    ++count;
    visit(line.measurement->view(), line.identity.empty() ? line.digest : line.identity);
  });
  for (std::string_view line; reader.next(line);) {
    ++number;
    const bool is_end = line.starts_with(beginning_of_end), is_long = line.size() > longest_line;
    if (number > 1 && !is_end && !is_long && !has_ended) {
      lines.add({.number = number, .text = line}, reader.bytes());
      continue;
    }
    lines.finish();
    if (is_long) fail("too long", fmt::format("{} bytes at most", longest_line));
    if (has_ended) fail("after the end of the export", fmt::format("nothing after line {}", number - 1));
    if (number == 1) {
      if (line != first.dump()) fail("not the first line of an export", first.dump());
      continue;
    }
    // The digest shows that a value was changed, but not in which line.
    if (line != last_line(count, digests))
      fail("an end that does not match the lines before it: a line was changed, added or removed",
           last_line(count, digests));
    has_ended = true;
  }
  lines.finish();
  if (in.bad()) throw InvalidArgument(name, "cut short", "a file that can be read to its end");
  if (number == 0) throw InvalidArgument(name, "empty", "an export, whose first line is " + first.dump());
  if (!has_ended) fail("the last line, but not the end of an export", last_line(count, digests));
}

std::size_t announced_measurements(std::istream& in) {
  constexpr std::streamoff longest_end = 128;
  std::string end(longest_end, '\0');
  in.seekg(0, std::ios::end);
  in.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(in.tellg()) - longest_end));
  in.read(end.data(), longest_end);
  end.resize(static_cast<std::size_t>(in.gcount()));
  in.clear();
  const json line =
      json::parse(end.substr(std::min(end.size(), end.rfind(beginning_of_end))), nullptr, false);
  const auto found = line.is_object() ? line.find("measurements") : line.end();
  return found != line.end() && found->is_number_unsigned() ? found->get<std::size_t>() : 0;
}

std::vector<Measurement> read_export(std::istream& in, const std::string& name) {
  std::vector<Measurement> list;
  std::string text;
  Environment environment;
  visit_export(in, name, [&](const MeasurementView& measurement, std::string_view) {
    if (measurement.environment != text) {
      text = measurement.environment;
      environment = decode_environment(text);
    }
    list.push_back(measurement_of(measurement, environment));
  });
  return list;
}

ExportWriter::ExportWriter(std::ostream& out) : out_(out) {
  out_ << json{{"format", format}, {"version", format_version}}.dump() << '\n';
}

void ExportWriter::add(std::string_view line, std::string_view identity) {
  waiting_.append(line) += '\n';
  identities_ += identity;
  ++count_;
  if (waiting_.size() >= written_at_once) write();
}

void ExportWriter::end() {
  waiting_.append(last_line(count_, identities_)) += '\n';
  write();
}

void ExportWriter::write() {
  out_.write(waiting_.data(), static_cast<std::streamsize>(waiting_.size()));
  waiting_.clear();
}

void write_export(std::ostream& out, std::span<const Measurement> list) {
  ExportWriter writer(out);
  for (const Measurement& measurement : list) {
    const std::string line = to_json(measurement);
    writer.add(line, identity_of_line(line));
  }
  writer.end();
}

}  // namespace ce::cache
