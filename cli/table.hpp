#pragma once
/// \file
/// Columns of text for people.

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ce::cli {

/// Columns that a terminal needs for UTF-8 text without wide characters.
[[nodiscard]] std::size_t width_of(std::string_view text) noexcept;

/// The first columns of the text, ending in ".." where something was cut off.
[[nodiscard]] std::string cut(std::string_view text, std::size_t width);

/// Figures of one column, in one unit and with the same digits: three of the smallest, and as many more, up to two, as
/// tell figures apart that differ by 0.1%.
struct Figures {
  std::string unit;                ///< behind the column's title; empty for none
  std::vector<std::string> texts;  ///< "-" for what is none: 0 and less, and what is not finite
};
[[nodiscard]] Figures time_figures(const std::vector<double>& microseconds);
[[nodiscard]] Figures throughput_figures(const std::vector<double>& gbs);

/// A table fits lines of page_width(): columns are left out and texts cut, as far as the columns say that they may be.
/// A column without a text in any row is not printed.
class Table {
 public:
  enum class Align { left, right };
  /// What the cells of a column are, where not texts: figures, which the column formats as one.
  enum class Of { texts, times, throughputs };
  struct Column {
    std::string title;
    Align align = Align::left;
    /// Where a line is too long, columns of the highest number are left out first; those of 0 never.
    int rank = 0;
    /// Its texts may be cut to so many characters; 0: they may not.
    std::size_t least = 0;
    Of of = Of::texts;
  };
  /// Columns of microseconds and of 1e9 bytes a second.
  [[nodiscard]] static Column times(std::string title, int rank = 0);
  [[nodiscard]] static Column throughputs(int rank = 0);

  /// A text, or the figure of a column of figures.
  class Cell {
   public:
    Cell(std::string text) : value_(std::move(text)) {}         // NOLINT: stands for a text
    Cell(const char* text) : value_(std::string(text)) {}       // NOLINT: the same
    Cell(std::string_view text) : value_(std::string(text)) {}  // NOLINT: the same
    Cell(double figure) : value_(figure) {}                     // NOLINT: stands for a figure
    /// \param mark  stands at the end and is never cut
    Cell(std::string text, std::string mark) : value_(std::move(text)), mark_(std::move(mark)) {}
    [[nodiscard]] const std::string* text() const noexcept { return std::get_if<std::string>(&value_); }
    [[nodiscard]] const std::string& mark() const noexcept { return mark_; }
    [[nodiscard]] double figure() const noexcept { return std::get<double>(value_); }

   private:
    std::variant<std::string, double> value_;
    std::string mark_;
  };

  explicit Table(std::vector<Column> columns);

  /// \param cells  one for each column; what they quote of others is made printable()
  void add(std::vector<Cell> cells);
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }

  /// Titles and rows, each line indented, without spaces at its end, and with a newline.
  [[nodiscard]] std::string text(std::size_t indent = 0) const;
  [[nodiscard]] std::string text(std::size_t indent, std::size_t width) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

inline constexpr std::size_t any_width = std::numeric_limits<std::size_t>::max();

/// Of the lines of tables: 80 columns, and more on a terminal that has more, or where COLUMNS says so.
[[nodiscard]] std::size_t page_width();
/// What --wide asks for: any_width.
void set_page_width(std::size_t width);
/// Whether a table left something out, or cut it, since the last call.
[[nodiscard]] bool has_left_out() noexcept;

}  // namespace ce::cli
