#include "cli/report/width_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "cli/units.hpp"

namespace ce::cli {

std::string kind_of(generator::Problem problem) {
  problem.alignment = generator::Alignment::vector;  // it depends on the columns
  const std::string title = generator::title(problem);
  const std::string operation(generator::name(problem.operation));
  const std::string shape =
      fmt::format("{} {} {} x {}", operation, name(problem.dtype), problem.rows, problem.columns);
  return operation + title.substr(std::min(shape.size(), title.size()));
}

std::vector<PlotPanel> panels_of(std::span<const Throughput> throughputs) {
  std::set<std::tuple<std::string, DType, std::int64_t>> widths;
  bool by_rows = false;
  for (const auto& [problem, gbs, ceiling_gbs] : throughputs)
    by_rows |= !widths.emplace(kind_of(problem), problem.dtype, problem.columns).second;

  std::vector<PlotPanel> panels;
  for (const auto& [problem, gbs, ceiling_gbs] : throughputs) {
    const std::string title = kind_of(problem);
    auto panel = std::find_if(panels.begin(), panels.end(),
                              [&](const PlotPanel& known) { return known.title == title; });
    if (panel == panels.end())
      panel =
          panels.insert(panel, {.title = title, .lines = {}, .bound = {.label = "ceiling", .points = {}}});
    std::string label(name(problem.dtype));
    if (by_rows) label += fmt::format(", {}", counted(problem.rows, "row"));
    auto line = std::find_if(panel->lines.begin(), panel->lines.end(),
                             [&](const PlotLine& known) { return known.label == label; });
    if (line == panel->lines.end()) line = panel->lines.insert(line, {.label = label, .points = {}});
    const auto columns = static_cast<double>(problem.columns);
    line->points.emplace_back(columns, gbs);
    if (ceiling_gbs > 0) panel->bound.points.emplace_back(columns, ceiling_gbs);
  }
  for (PlotPanel& panel : panels) {
    for (PlotLine& line : panel.lines) std::sort(line.points.begin(), line.points.end());
    // One ceiling for each width: the highest over dtypes and rows.
    std::map<double, double> highest;
    for (const auto& [columns, gbs] : panel.bound.points) highest[columns] = std::max(highest[columns], gbs);
    panel.bound.points.assign(highest.begin(), highest.end());
  }
  return panels;
}

}  // namespace ce::cli
