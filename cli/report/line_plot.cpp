#include "cli/report/line_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "cli/report/chart.hpp"
#include "cli/report/html.hpp"

namespace ce::cli {
namespace {

constexpr double panel_width = 400, panel_height = 260;  // with its labels
constexpr double left = 58, right = 16, top = 34, bottom = 44;
constexpr double header = 84, margin = 16;
constexpr std::size_t panels_a_row = 3;
constexpr std::size_t colours = 6;
constexpr double legend_step = 150;

struct Range {
  double least = 0, most = 0;
};

/// The range of values in all panels; for a single x, a factor of two around it.
Range x_range(const LinePlot& plot) {
  Range range{0, 0};
  for (const PlotPanel& panel : plot.panels)
    for (const PlotLine& line : panel.lines)
      for (const auto& [x, y] : line.points) {
        range.least = range.most == 0 ? x : std::min(range.least, x);
        range.most = std::max(range.most, x);
      }
  if (range.most == 0) return {1, 2};
  if (range.least == range.most) return {range.least / 2, range.most * 2};
  return range;
}

double largest_y(const LinePlot& plot) {
  double most = 0;
  const auto look = [&most](const PlotLine& line) {
    for (const auto& [x, y] : line.points) most = std::max(most, y);
  };
  for (const PlotPanel& panel : plot.panels) {
    std::for_each(panel.lines.begin(), panel.lines.end(), look);
    look(panel.bound);
  }
  return most > 0 ? most : 1;
}

/// The style of an SVG element, in light and dark.
constexpr std::string_view plot_style = R"css(
  svg { --paper: #ffffff; --ink: #1f2328; --faint: #59636e; --grid: #d9dee3;
        --c0: #0969da; --c1: #bf5700; --c2: #1a7f37; --c3: #8250df; --c4: #cf222e; --c5: #1b7c83; }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #0d1117; --ink: #e6edf3; --faint: #9198a1; --grid: #30363d;
          --c0: #58a6ff; --c1: #f0883e; --c2: #3fb950; --c3: #bc8cff; --c4: #ff7b72; --c5: #39c5cf; }
  }
  svg text { font: 11px system-ui, sans-serif; fill: var(--faint); }
  svg .title { font-size: 16px; font-weight: 600; fill: var(--ink); }
  svg .panel { font-size: 12px; font-weight: 600; fill: var(--ink); }
  svg .grid { stroke: var(--grid); stroke-width: 1; }
  svg .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
  svg .bound { fill: none; stroke: var(--faint); stroke-width: 1.4; stroke-dasharray: 5 4; }
)css";

class Svg {
 public:
  explicit Svg(const LinePlot& plot) : plot_(plot), x_(x_range(plot)), y_step_(step_for(largest_y(plot))) {
    y_most_ = y_step_ * std::ceil(largest_y(plot) / y_step_);
    for (const PlotPanel& panel : plot.panels)
      for (const PlotLine& line : panel.lines)
        if (std::find(labels_.begin(), labels_.end(), line.label) == labels_.end())
          labels_.push_back(line.label);
  }

  std::string text() {
    const std::size_t columns = std::clamp<std::size_t>(plot_.panels.size(), 1, panels_a_row);
    const std::size_t rows = (plot_.panels.size() + columns - 1) / columns;
    // The legend is as wide as the panels.
    const double inner = std::max(static_cast<double>(columns) * panel_width, 3 * legend_step);
    const auto a_line = static_cast<std::size_t>(inner / legend_step);
    const double legend_lines =
        std::ceil(static_cast<double>(labels_.size() + 1) / static_cast<double>(a_line));
    const double head = header + 18 * (legend_lines - 1);
    const double width = inner + 2 * margin;
    const double height = head + static_cast<double>(rows) * panel_height + margin;
    out_ = fmt::format(
        R"xml(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" height="{1:.0f}" role="img">
<title>{2}</title>
<style>{3}</style>
<rect width="100%" height="100%" style="fill: var(--paper)"/>
)xml",
        width, height, escaped(plot_.title), plot_style);
    write(margin, 28, plot_.title, "title", "start");
    write(margin, 48, plot_.subtitle, "", "start");
    legend(a_line, margin, 70);
    for (std::size_t i = 0; i < plot_.panels.size(); ++i) {
      const std::size_t row = i / columns, column = i % columns;
      panel(plot_.panels[i], margin + static_cast<double>(column) * panel_width,
            head + static_cast<double>(row) * panel_height);
    }
    return out_ + "</svg>\n";
  }

 private:
  void write(double x, double y, std::string_view words, std::string_view kind, std::string_view anchor) {
    out_ +=
        fmt::format(R"xml(<text x="{:.1f}" y="{:.1f}"{} text-anchor="{}">{}</text>)xml", x, y,
                    kind.empty() ? "" : fmt::format(R"xml( class="{}")xml", kind), anchor, escaped(words));
    out_ += '\n';
  }

  /// Lines differ in colour; when colours run out, in dashes.
  [[nodiscard]] std::string stroke(std::string_view label) const {
    const auto i =
        static_cast<std::size_t>(std::find(labels_.begin(), labels_.end(), label) - labels_.begin());
    const std::size_t round = i / colours;
    return fmt::format("stroke: var(--c{}){}", i % colours,
                       round == 0 ? "" : fmt::format("; stroke-dasharray: {} 3", 2 + 4 * round));
  }

  void legend(std::size_t a_line, double left_edge, double baseline) {
    const auto entry = [&](std::size_t i, std::string_view label, const std::string& look) {
      const std::size_t line = i / a_line, column = i % a_line;
      const double x = left_edge + legend_step * static_cast<double>(column),
                   y = baseline + 18 * static_cast<double>(line);
      out_ += fmt::format(R"xml(<path d="M{:.1f} {:.1f}h24" {}/>)xml", x, y - 4, look);
      out_ += '\n';
      write(x + 30, y, label, "", "start");
    };
    for (std::size_t i = 0; i < labels_.size(); ++i)
      entry(i, labels_[i], fmt::format(R"xml(class="line" style="{}")xml", stroke(labels_[i])));
    const auto has_bound = [](const PlotPanel& panel) { return !panel.bound.points.empty(); };
    const auto bounded = std::find_if(plot_.panels.begin(), plot_.panels.end(), has_bound);
    if (bounded != plot_.panels.end()) entry(labels_.size(), bounded->bound.label, R"xml(class="bound")xml");
  }

  [[nodiscard]] double across(double x) const {
    return left + (panel_width - left - right) * std::log2(x / x_.least) / std::log2(x_.most / x_.least);
  }
  [[nodiscard]] double down(double y) const {
    return panel_height - bottom - (panel_height - top - bottom) * y / y_most_;
  }

  void axes() {
    for (int i = 0; i * y_step_ <= y_most_ * (1 + 1e-9); ++i) {
      const double y = down(i * y_step_);
      out_ += fmt::format(R"xml(<path class="grid" d="M{:.1f} {:.1f}H{:.1f}"/>)xml", left, y,
                          panel_width - right);
      out_ += '\n';
      write(left - 6, y + 4, fmt::format("{:g}", i * y_step_), "", "end");
    }
    // Powers of two, as many as fit with their labels.
    const int first = static_cast<int>(std::ceil(std::log2(x_.least) - 1e-9)),
              last = static_cast<int>(std::floor(std::log2(x_.most) + 1e-9));
    const int apart = std::max(1, (last - first + 5) / 6);
    for (int power = first; power <= last; power += apart) {
      const double x = across(std::exp2(power));
      out_ += fmt::format(R"xml(<path class="grid" d="M{:.1f} {:.1f}v4"/>)xml", x, down(0));
      out_ += '\n';
      write(x, down(0) + 16, fmt::format("{:.10g}", std::exp2(power)), "", "middle");
    }
    write((left + panel_width - right) / 2, panel_height - 8, plot_.x_label, "", "middle");
    write(left, top - 13, plot_.y_label, "", "end");
  }

  void draw(const PlotLine& line, const std::string& look, bool dots) {
    if (line.points.empty()) return;
    std::string path;
    for (const auto& [x, y] : line.points)
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", across(x), down(y));
    if (line.points.size() == 1 && !dots)  // a single width: draw a level
      path =
          fmt::format("M{:.1f} {:.1f}H{:.1f}", left, down(line.points.front().second), panel_width - right);
    out_ += fmt::format(R"xml(<path d="{}" {}/>)xml", path, look);
    out_ += '\n';
    if (!dots) return;
    for (const auto& [x, y] : line.points) {
      out_ += fmt::format(
          R"xml(<circle cx="{:.1f}" cy="{:.1f}" r="2.4" style="{}; fill: var(--paper)"><title>{}, {:g}: {:.4g} {}</title></circle>)xml",
          across(x), down(y), stroke(line.label), escaped(line.label), x, y, escaped(plot_.y_label));
      out_ += '\n';
    }
  }

  void panel(const PlotPanel& panel, double x, double y) {
    out_ += fmt::format(R"xml(<g transform="translate({:.0f} {:.0f})">)xml", x, y);
    out_ += '\n';
    if (!panel.title.empty()) write(left, 12, panel.title, "panel", "start");
    axes();
    draw(panel.bound, R"xml(class="bound")xml", false);
    for (const PlotLine& line : panel.lines)
      draw(line, fmt::format(R"xml(class="line" style="{}")xml", stroke(line.label)), true);
    out_ += "</g>\n";
  }

  const LinePlot& plot_;
  Range x_;
  double y_step_, y_most_ = 0;
  std::vector<std::string> labels_;
  std::string out_;
};

}  // namespace

std::string svg_of(const LinePlot& plot) { return Svg(plot).text(); }

}  // namespace ce::cli
