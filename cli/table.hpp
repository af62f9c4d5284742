#pragma once
/// \file
/// Columns of text for people.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ce::cli {

/// Columns that a terminal needs for UTF-8 text without wide characters.
[[nodiscard]] std::size_t width_of(std::string_view text) noexcept;

/// The first columns of the text, ending in ".." where something was cut off.
[[nodiscard]] std::string cut(std::string_view text, std::size_t width);

class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };

  explicit Table(std::vector<Column> columns);

  /// \param cells  one for each column; what they quote of others is made printable()
  void add(std::vector<std::string> cells);
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }

  /// Titles and rows, each line indented, without spaces at its end, and with a newline.
  [[nodiscard]] std::string text(std::size_t indent = 0) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ce::cli
