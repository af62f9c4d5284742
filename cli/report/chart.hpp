#pragma once
/// \file
/// Line charts of a page: SVG whose points belong to problems, which the page filters, and whose look is in page.css.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ce::cli {

struct ChartPoint {
  double x = 0, y = 0;
  int problem = 0;  ///< its number
  std::string tip;  ///< shown where a pointer rests on it
};

struct ChartLine {
  std::string label;  ///< in the legend; empty for a line without an entry
  std::string look;   ///< classes of page.css
  std::vector<ChartPoint> points;
};

/// An upright line, at which something changed.
struct ChartMark {
  double x = 0;
  std::string label;
};

enum class XAxis : std::uint8_t {
  columns,  ///< logarithmic
  days,     ///< of seconds since 1970
};
enum class YAxis : std::uint8_t { percent, number };

struct Chart {
  std::string title;  ///< for readers who do not see it
  XAxis x_axis = XAxis::columns;
  YAxis y_axis = YAxis::percent;
  double low = 0, high = 1;     ///< of y, at least
  std::optional<double> level;  ///< drawn dashed
  std::vector<ChartMark> marks;
  std::vector<ChartLine> lines;
};

/// The chart, and its legend below where lines have labels.
[[nodiscard]] std::string html_of(const Chart& chart);

/// 1, 2, 2.5 or 5 times a power of ten, so that about five steps reach `most`.
[[nodiscard]] double step_for(double most);

}  // namespace ce::cli
