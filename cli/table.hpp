#pragma once
/// \file
/// Prints tables for people.

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ce::cli {

/// Number of terminal columns for UTF-8 text without wide characters.
[[nodiscard]] std::size_t width_of(std::string_view text) noexcept;

/// The beginning of the text, ending in ".." if something was cut off.
[[nodiscard]] std::string cut(std::string_view text, std::size_t width);

/// Figures of one column, in one unit and with equal precision: three digits of the smallest, and up to two more if
/// needed to distinguish figures that differ by 0.1%.
struct Figures {
  std::string unit;                ///< shown behind the column's title; empty for none
  std::vector<std::string> texts;  ///< "-" for figures that are not positive and finite
};
[[nodiscard]] Figures time_figures(const std::vector<double>& microseconds);
[[nodiscard]] Figures throughput_figures(const std::vector<double>& gbs);

/// A table that fits lines of page_width(): columns are left out and texts cut, as far as the columns allow. A column
/// without text in all rows is not printed.
class Table {
 public:
  enum class Align { left, right };
  /// The kind of cells: texts, or figures, which the column formats alike.
  enum class Of { texts, times, throughputs };
  struct Column {
    std::string title;
    Align align = Align::left;
    /// If a line is too long, columns with the highest number are left out first; those with 0 never.
    int rank = 0;
    /// Smallest length to which its texts may be cut; 0: never.
    std::size_t least = 0;
    Of of = Of::texts;
  };
  /// Columns of microseconds and of 1e9 bytes a second.
  [[nodiscard]] static Column times(std::string title, int rank = 0);
  [[nodiscard]] static Column throughputs(int rank = 0);

  /// A text, or a figure in a column of figures.
  class Cell {
   public:
    Cell(std::string text) : value_(std::move(text)) {}         // NOLINT: converts implicitly
    Cell(const char* text) : value_(std::string(text)) {}       // NOLINT: converts implicitly
    Cell(std::string_view text) : value_(std::string(text)) {}  // NOLINT: converts implicitly
    Cell(double figure) : value_(figure) {}                     // NOLINT: converts implicitly
    /// \param mark  appended at the end, and never cut
    Cell(std::string text, std::string mark) : value_(std::move(text)), mark_(std::move(mark)) {}
    [[nodiscard]] const std::string* text() const noexcept { return std::get_if<std::string>(&value_); }
    [[nodiscard]] const std::string& mark() const noexcept { return mark_; }
    [[nodiscard]] double figure() const noexcept { return std::get<double>(value_); }

   private:
    std::variant<std::string, double> value_;
    std::string mark_;
  };

  explicit Table(std::vector<Column> columns);

  /// \param cells  one for each column; foreign text in them is made printable()
  void add(std::vector<Cell> cells);
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }

  /// Titles and rows: each line is indented, without trailing spaces, and ends with a newline.
  [[nodiscard]] std::string text(std::size_t indent = 0) const;
  [[nodiscard]] std::string text(std::size_t indent, std::size_t width) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

inline constexpr std::size_t any_width = std::numeric_limits<std::size_t>::max();

/// The width of tables: 80 columns, or more on a wider terminal, or if COLUMNS says so.
[[nodiscard]] std::size_t page_width();
/// The width for --wide: any_width.
void set_page_width(std::size_t width);
/// Whether a table left out or cut something since the last call.
[[nodiscard]] bool has_left_out() noexcept;

}  // namespace ce::cli
