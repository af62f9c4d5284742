#include "cli/table.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "base/environment.hpp"
#include "base/printable.hpp"
#include "ce/error.hpp"

namespace ce::cli {
namespace {

constexpr std::size_t narrowest_page = 80, between_columns = 2;

std::atomic<std::size_t> width_of_page{0};  ///< 0: not known yet
std::atomic<bool> left_out{false};

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

bool is_figure(double value) { return value > 0 && std::isfinite(value); }

std::vector<std::string> with_digits(const std::vector<double>& values, int digits) {
  std::vector<std::string> texts;
  texts.reserve(values.size());
  for (const double value : values)
    texts.push_back(is_figure(value) ? fmt::format("{:.{}f}", value, digits) : "-");
  return texts;
}

/// Whether the texts differ for values that differ by more than timing noise.
bool tell_apart(const std::vector<double>& ascending, int digits) {
  constexpr double alike = 0.001;
  for (std::size_t i = 1; i < ascending.size(); ++i)
    if (ascending[i] > ascending[i - 1] * (1 + alike) &&
        fmt::format("{:.{}f}", ascending[i - 1], digits) == fmt::format("{:.{}f}", ascending[i], digits))
      return false;
  return true;
}

std::vector<std::string> figures(const std::vector<double>& values) {
  constexpr int usual_digits = 3, more_digits = 2, most_decimals = 3;
  std::vector<double> ascending;
  for (const double value : values)
    if (is_figure(value)) ascending.push_back(value);
  if (ascending.empty()) return with_digits(values, 0);
  std::sort(ascending.begin(), ascending.end());
  const int before_point = static_cast<int>(std::floor(std::log10(ascending.front()))) + 1;
  int digits = std::clamp(usual_digits - before_point, 0, most_decimals);
  const int most = std::clamp(usual_digits + more_digits - before_point, digits, most_decimals);
  while (digits < most && !tell_apart(ascending, digits)) ++digits;
  return with_digits(values, digits);
}

}  // namespace

Figures time_figures(const std::vector<double>& microseconds) {
  constexpr std::pair<const char*, double> units[] = {{"us", 1}, {"ms", 1e3}, {"s", 1e6}};
  constexpr double long_of_a_unit = 1e4;
  double least = std::numeric_limits<double>::infinity();
  for (const double us : microseconds)
    if (is_figure(us)) least = std::min(least, us);
  const auto* unit = std::begin(units);
  while (std::next(unit) != std::end(units) && std::isfinite(least) && least / unit->second >= long_of_a_unit)
    ++unit;
  std::vector<double> scaled = microseconds;
  for (double& value : scaled) value /= unit->second;
  return {unit->first, figures(scaled)};
}

Figures throughput_figures(const std::vector<double>& gbs) { return {"", figures(gbs)}; }

std::size_t width_of(std::string_view text) noexcept {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues_character(c); }));
}

std::string cut(std::string_view text, std::size_t width) {
  if (width_of(text) <= width) return std::string(text);
  const std::size_t kept = width > 2 ? width - 2 : 0;
  std::size_t bytes = 0;
  for (std::size_t characters = 0; characters < kept; ++characters) {
    ++bytes;
    while (continues_character(text[bytes])) ++bytes;
  }
  return std::string(text.substr(0, bytes)) + std::string(std::min<std::size_t>(width, 2), '.');
}

Table::Column Table::times(std::string title, int rank) {
  return {.title = std::move(title), .align = Align::right, .rank = rank, .of = Of::times};
}

Table::Column Table::throughputs(int rank) {
  return {.title = "GB/s", .align = Align::right, .rank = rank, .of = Of::throughputs};
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add(std::vector<Cell> cells) {
  if (cells.size() != columns_.size())
    throw InvalidArgument("cells of a row", fmt::to_string(cells.size()), fmt::to_string(columns_.size()));
  for (Cell& cell : cells)
    if (cell.text() != nullptr) cell = Cell(printable(*cell.text()), printable(cell.mark()));
  rows_.push_back(std::move(cells));
}

std::string Table::text(std::size_t indent) const { return text(indent, page_width()); }

namespace {

/// The texts of a printed column, title first.
struct Printed {
  const Table::Column* column = nullptr;
  std::vector<std::string> texts, marks;
  std::size_t width = 0;

  [[nodiscard]] std::string cell(std::size_t row) const {
    return cut(texts[row], width - std::min(width, width_of(marks[row]))) + marks[row];
  }

  [[nodiscard]] std::size_t least() const {
    return column->least == 0 ? width : std::min(width, std::max(column->least, width_of(column->title)));
  }
};

std::size_t sum_of(const std::vector<Printed>& columns, std::size_t indent, const auto& width) {
  std::size_t sum = indent + between_columns * (columns.size() - 1);
  for (const Printed& column : columns) sum += width(column);
  return sum;
}

/// Leaves out columns until the shortest forms of the others fit, and then cuts the widest texts.
void fit(std::vector<Printed>& columns, std::size_t indent, std::size_t width) {
  const auto by_rank = [](const Printed& a, const Printed& b) { return a.column->rank < b.column->rank; };
  while (sum_of(columns, indent, [](const Printed& column) { return column.least(); }) > width) {
    // The last of the least important columns.
    const auto last = std::max_element(columns.rbegin(), columns.rend(), by_rank);
    if (last->column->rank == 0) break;
    columns.erase(std::next(last).base());
    left_out = true;
  }
  std::vector<std::size_t> least(columns.size());
  std::transform(columns.begin(), columns.end(), least.begin(),
                 [](const Printed& column) { return column.least(); });
  for (;;) {
    const std::size_t sum = sum_of(columns, indent, [](const Printed& column) { return column.width; });
    if (sum <= width) break;
    std::size_t widest = columns.size();
    for (std::size_t i = 0; i < columns.size(); ++i)
      if (columns[i].width > least[i] &&
          (widest == columns.size() || columns[i].width > columns[widest].width))
        widest = i;
    if (widest == columns.size()) break;
    --columns[widest].width;
    left_out = true;
  }
}

Figures figures_of(const Table::Column& column, const std::vector<double>& values) {
  if (column.of == Table::Of::times) return time_figures(values);
  if (column.of == Table::Of::throughputs) return throughput_figures(values);
  return {"", std::vector<std::string>(values.size())};
}

/// \param cells  cells of one column
Printed printed(const Table::Column& column, const std::vector<const Table::Cell*>& cells) {
  std::vector<double> values;
  values.reserve(cells.size());
  for (const Table::Cell* cell : cells) values.push_back(cell->text() == nullptr ? cell->figure() : 0);
  const Figures figures = figures_of(column, values);
  const std::string unit = figures.unit.empty() ? "" : " " + figures.unit;
  Printed result{.column = &column, .texts = {column.title + unit}, .marks = {""}};
  for (std::size_t row = 0; row < cells.size(); ++row) {
    const std::string* text = cells[row]->text();
    result.texts.push_back(text != nullptr ? *text : figures.texts[row]);
    result.marks.push_back(cells[row]->mark());
  }
  for (std::size_t row = 0; row < result.texts.size(); ++row)
    result.width = std::max(result.width, width_of(result.texts[row]) + width_of(result.marks[row]));
  return result;
}

bool is_bare(const Printed& column) {
  return std::all_of(column.texts.begin() + 1, column.texts.end(),
                     [](const std::string& text) { return text.empty(); });
}

}  // namespace

std::string Table::text(std::size_t indent, std::size_t width) const {
  std::vector<Printed> columns;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::vector<const Cell*> cells;
    cells.reserve(rows_.size());
    for (const auto& row : rows_) cells.push_back(&row[i]);
    if (Printed column = printed(columns_[i], cells); rows_.empty() || !is_bare(column))
      columns.push_back(std::move(column));
  }
  fit(columns, indent, width);
  std::string text;
  for (std::size_t row = 0; row <= rows_.size(); ++row) {
    std::string line(indent, ' ');
    for (const Printed& column : columns) {
      const std::string cell = column.cell(row);
      const std::string padding(column.width - std::min(column.width, width_of(cell)), ' ');
      line += &column == &columns.front() ? "" : std::string(between_columns, ' ');
      line += column.column->align == Align::right ? padding + cell : cell + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::size_t page_width() {
  if (width_of_page == 0) {
    winsize size{};
    const bool is_terminal = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    const int columns =
        is_terminal ? size.ws_col : std::atoi(environment_variable("COLUMNS").value_or("").c_str());
    width_of_page = std::max(narrowest_page, static_cast<std::size_t>(std::max(columns, 0)));
  }
  return width_of_page;
}

void set_page_width(std::size_t width) { width_of_page = width; }

bool has_left_out() noexcept { return left_out.exchange(false); }

}  // namespace ce::cli
