#include "cli/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ce/error.hpp"

namespace ce::cli {
namespace {

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

class Reader {
 public:
  Reader(std::string_view text, std::string_view name) : text_(text), name_(name) {
    if (text_.starts_with(byte_order_mark)) text_.remove_prefix(byte_order_mark.size());
  }

  std::vector<CsvRecord> records() {
    std::vector<CsvRecord> records;
    while (!text_.empty()) {
      CsvRecord record{.line = line_};
      do record.fields.push_back(field());
      while (take(','));
      take('\r');
      if (take('\n')) ++line_;
      const bool blank = record.fields.size() == 1 && record.fields.front().empty();
      if (!blank) records.push_back(std::move(record));
    }
    return records;
  }

 private:
  bool take(char c) {
    if (!text_.starts_with(c)) return false;
    text_.remove_prefix(1);
    return true;
  }

  void skip_spaces() { text_.remove_prefix(std::min(text_.find_first_not_of(" \t"), text_.size())); }

  std::string field() {
    skip_spaces();
    if (take('"')) return quoted();
    const std::string_view found = text_.substr(0, text_.find_first_of(",\r\n"));
    text_.remove_prefix(found.size());
    return std::string(found.substr(0, found.find_last_not_of(" \t") + 1));
  }

  std::string quoted() {
    const int begin = line_;
    std::string found;
    for (;; text_.remove_prefix(1)) {
      if (text_.empty()) fail(begin, found.substr(0, found.find('\n')), "a quote at the end of this field");
      if (text_.front() == '"') {
        text_.remove_prefix(1);
        if (!text_.starts_with('"')) break;
      }
      if (text_.front() == '\n') ++line_;
      found += text_.front();
    }
    skip_spaces();
    if (!text_.empty() && text_.find_first_of(",\r\n") != 0)
      fail(line_, std::string(text_.substr(0, text_.find_first_of(",\r\n"))),
           "a comma or the end of the line after the quote that ends a field");
    return found;
  }

  [[noreturn]] void fail(int line, const std::string& value, std::string_view expected) const {
    throw InvalidArgument(fmt::format("{} line {}", name_, line), fmt::format("\"{}\"", value), expected);
  }

  std::string_view text_;
  std::string_view name_;
  int line_ = 1;
};

}  // namespace

std::vector<CsvRecord> parse_csv(std::string_view text, std::string_view name) {
  return Reader(text, name).records();
}

}  // namespace ce::cli
