#pragma once
/// \file
/// Plots GB/s over the columns.

#include <span>
#include <string>
#include <vector>

#include "cli/report/line_plot.hpp"
#include "generator/problem.hpp"

namespace ce::cli {

struct Throughput {
  generator::Problem problem;
  double gbs = 0;
  double ceiling_gbs = 0;  ///< 0: none
};

/// The title without dtype and shape: "cross_entropy loss+grad mean in place".
[[nodiscard]] std::string kind_of(generator::Problem problem);

/// A panel for each kind, a line for each dtype, and the ceiling. If a width was timed with several numbers of rows,
/// each number has its own line.
[[nodiscard]] std::vector<PlotPanel> panels_of(std::span<const Throughput> throughputs);

}  // namespace ce::cli
