#include "cli/shapes_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "ce/error.hpp"
#include "cli/csv.hpp"

namespace ce::cli {
namespace {

constexpr std::array lists{"op", "dtype", "rows", "cols"};

/// The options of the commands, filled from columns with equal names.
class Record {
 public:
  explicit Record(const ProblemOptions& given) : given_(given) {
    app_.set_help_flag();
    add_problem_options(app_, options_);
  }

  [[nodiscard]] bool has(const std::string& column) const {
    return app_.get_option_no_throw("--" + column) != nullptr;
  }

  [[nodiscard]] std::vector<std::string> columns() const {
    std::vector<std::string> names;
    for (const CLI::Option* option : app_.get_options()) names.push_back(option->get_lnames().front());
    return names;
  }

  /// Whether the command line sets the option for all records.
  [[nodiscard]] bool is_given(std::string_view list) const {
    const std::vector<std::string>& values = list == "op"      ? given_.operations
                                             : list == "dtype" ? given_.dtypes
                                             : list == "rows"  ? given_.rows
                                                               : given_.columns;
    return !values.empty();
  }

  [[nodiscard]] std::vector<generator::Problem> problems(const std::vector<std::string>& columns,
                                                         const std::vector<std::string>& fields) {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < columns.size(); ++i)
      if (!fields[i].empty()) add_words(columns[i], fields[i], words);
    options_ = {};
    std::reverse(words.begin(), words.end());  // CLI11 expects them in reverse
    try {
      app_.parse(words);
    } catch (const CLI::ParseError& error) {
      throw InvalidArgument("fields", fmt::format("{}", fmt::join(fields, ",")), error.what());
    }
    for (const auto& [own, given] : {std::pair{&options_.operations, &given_.operations},
                                     {&options_.dtypes, &given_.dtypes},
                                     {&options_.rows, &given_.rows},
                                     {&options_.columns, &given_.columns}})
      if (!given->empty()) *own = *given;
    require_lists(options_, "a value, or the option in the command", "an empty field");
    return problems_of(options_);
  }

 private:
  void add_words(const std::string& column, const std::string& field, std::vector<std::string>& words) const {
    const std::string name = "--" + column;
    const bool takes_nothing = app_.get_option(name)->get_items_expected_max() == 0;
    if (!takes_nothing || (column == "weights" && field != "true" && field != "false")) {
      words.push_back(name + "=" + field);
    } else if (field == "true") {
      words.push_back(name);
    } else if (field != "false") {
      throw InvalidArgument(name, fmt::format("\"{}\"", field), "true, false or an empty field");
    } else if (column == "in-place") {
      words.emplace_back("--no-in-place");
    }
  }

  const ProblemOptions& given_;
  ProblemOptions options_;
  CLI::App app_;
};

std::string text_of(const std::filesystem::path& file) {
  const std::string in_quotes = fmt::format("\"{}\"", file.string());
  std::ifstream stream(file, std::ios::binary);
  if (!stream && errno == ENOENT) throw NotFound("there is no file " + file.string());
  if (std::filesystem::is_directory(file))
    throw InvalidArgument("--from", in_quotes + ", a folder", "a file of comma-separated values");
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream.is_open() || stream.bad())
    throw InvalidArgument("--from", in_quotes, "a file that can be read");
  return text;
}

void check_columns(const CsvRecord& header, const Record& record, const std::string& name) {
  const std::string line = fmt::format("{} line {}", name, header.line);
  for (auto column = header.fields.begin(); column != header.fields.end(); ++column) {
    const std::string in_quotes = fmt::format("\"{}\"", *column);
    if (!record.has(*column))
      throw InvalidArgument(line, in_quotes,
                            fmt::format("columns named {}", fmt::join(record.columns(), ", ")));
    if (std::find(header.fields.begin(), column, *column) != column)
      throw InvalidArgument(line, in_quotes, "each column only once");
  }
  for (const char* needed : lists)
    if (!record.is_given(needed) &&
        std::find(header.fields.begin(), header.fields.end(), needed) == header.fields.end())
      throw InvalidArgument(line, fmt::format("{}", fmt::join(header.fields, ",")),
                            fmt::format("a column {0}, or --{0} in the command", needed));
}

}  // namespace

std::vector<generator::Problem> problems_of(const std::filesystem::path& file, const ProblemOptions& given) {
  return problems_in(text_of(file), file.string(), given);
}

std::vector<generator::Problem> problems_in(std::string_view text, const std::string& name,
                                            const ProblemOptions& given) {
  ProblemOptions others = given;
  for (auto* list : {&others.operations, &others.dtypes, &others.rows, &others.columns}) list->clear();
  if (others != ProblemOptions{})
    throw InvalidArgument("--from", fmt::format("\"{}\"", name),
                          "no problem options together with --from, except --op, --dtype, --rows and --cols; "
                          "others are columns of the file");

  const std::vector<CsvRecord> records = parse_csv(text, name);
  if (records.size() < 2)
    throw InvalidArgument("--from", fmt::format("\"{}\"", name),
                          "a line with the names of the columns, and a line for each problem");
  const std::vector<std::string>& columns = records.front().fields;
  check_columns(records.front(), Record(given), name);
  std::vector<generator::Problem> problems;
  for (auto record = records.begin() + 1; record != records.end(); ++record) {
    if (record->fields.size() != columns.size())
      throw InvalidArgument(fmt::format("{} line {}", name, record->line),
                            fmt::format("\"{}\"", fmt::join(record->fields, ",")),
                            fmt::format("{} fields, as in line {}, not {}", columns.size(),
                                        records.front().line, record->fields.size()));
    try {
      for (const generator::Problem& problem : Record(given).problems(columns, record->fields))
        if (std::find(problems.begin(), problems.end(), problem) == problems.end())
          problems.push_back(problem);
    } catch (const InvalidArgument& error) {
      std::string_view column = error.argument();
      if (column.starts_with("--")) column.remove_prefix(2);
      throw InvalidArgument(fmt::format("{} line {}, {}", name, record->line, column), error.value(),
                            error.expected());
    }
  }
  return problems;
}

}  // namespace ce::cli
