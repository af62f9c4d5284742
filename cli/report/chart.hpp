#pragma once
/// \file
/// Line charts of a page: SVG. Its points belong to problems, which the page can filter; page.css defines their style.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ce::cli {

struct ChartPoint {
  double x = 0, y = 0;
  int problem = 0;  ///< number of the problem
  std::string tip;  ///< shown under the pointer
};

struct ChartLine {
  std::string label;  ///< in the legend; empty for a line without an entry
  std::string look;   ///< CSS classes in page.css
  std::vector<ChartPoint> points;
};

/// A vertical line for a change.
struct ChartMark {
  double x = 0;
  std::string label;
};

enum class XAxis : std::uint8_t {
  columns,  ///< logarithmic
  days,     ///< seconds since 1970
};
enum class YAxis : std::uint8_t { percent, number };

struct Chart {
  std::string title;  ///< text for screen readers
  XAxis x_axis = XAxis::columns;
  YAxis y_axis = YAxis::percent;
  double low = 0, high = 1;     ///< range of y, at least
  std::optional<double> level;  ///< a level that is drawn dashed
  std::vector<ChartMark> marks;
  std::vector<ChartLine> lines;
};

/// The chart, with a legend below if lines have labels.
[[nodiscard]] std::string html_of(const Chart& chart);

/// 1, 2, 2.5 or 5 times a power of ten, so that about five steps reach `most`.
[[nodiscard]] double step_for(double most);

}  // namespace ce::cli
