#include "cli/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/printable.hpp"
#include "ce/error.hpp"

namespace ce::cli {
namespace {

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

}  // namespace

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

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add(std::vector<std::string> cells) {
  if (cells.size() != columns_.size())
    throw InvalidArgument("cells of a row", fmt::to_string(cells.size()), fmt::to_string(columns_.size()));
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::text(std::size_t indent) const {
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    std::size_t width = width_of(columns_[column].title);
    for (const auto& row : rows_) width = std::max(width, width_of(row[column]));
    widths.push_back(width);
  }

  std::string text;
  const auto write_line = [&](const auto& cell_of) {
    std::string line(indent, ' ');
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      const std::string& cell = cell_of(column);
      const std::string padding(widths[column] - width_of(cell), ' ');
      line += column == 0 ? "" : "  ";
      line += columns_[column].align == Align::right ? padding + cell : cell + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  write_line([this](std::size_t column) -> const std::string& { return columns_[column].title; });
  for (const auto& row : rows_)
    write_line([&row](std::size_t column) -> const std::string& { return row[column]; });
  return text;
}

}  // namespace ce::cli
