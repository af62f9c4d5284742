#pragma once
/// \file
/// Line plots as SVG, without any dependency.

#include <string>
#include <utility>
#include <vector>

namespace ce::cli {

struct PlotLine {
  std::string label;  ///< lines of the same label have the same colour in every panel
  std::vector<std::pair<double, double>> points;
};

struct PlotPanel {
  std::string title;
  std::vector<PlotLine> lines;
  PlotLine bound;  ///< drawn dashed, under the lines; may be empty
};

/// Panels side by side with a common legend. x is on a logarithmic axis, y on a linear one from 0, both the
/// same in all panels.
struct LinePlot {
  std::string title, subtitle;
  std::string x_label, y_label;
  std::vector<PlotPanel> panels;
};

/// A complete SVG document. Its colours follow the reader's preference for light or dark.
[[nodiscard]] std::string svg_of(const LinePlot& plot);

}  // namespace ce::cli
