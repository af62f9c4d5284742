#pragma once
/// \file
/// Line plots as SVG, without any dependency.

#include <string>
#include <utility>
#include <vector>

namespace ce::cli {

struct PlotLine {
  std::string label;  ///< lines with equal labels have equal colours in all panels
  std::vector<std::pair<double, double>> points;
};

struct PlotPanel {
  std::string title;
  std::vector<PlotLine> lines;
  PlotLine bound;  ///< drawn dashed, under the lines; may be empty
};

/// Panels side by side with a common legend. x is logarithmic, y is linear from 0; all panels have the same axes.
struct LinePlot {
  std::string title, subtitle;
  std::string x_label, y_label;
  std::vector<PlotPanel> panels;
};

/// A complete SVG document. Its colours follow the reader's preference for light or dark.
[[nodiscard]] std::string svg_of(const LinePlot& plot);

}  // namespace ce::cli
