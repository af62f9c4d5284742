#pragma once
/// \file
/// GB/s over the columns, as panels of a plot.

#include <span>
#include <string>
#include <vector>

#include "cli/report/line_plot.hpp"
#include "generator/problem.hpp"

namespace ce::cli {

struct Throughput {
  generator::Problem problem;
  double gbs = 0;
  double ceiling_gbs = 0;  ///< 0 for none
};

/// The title without dtype and shape: "cross_entropy loss+grad mean in place".
[[nodiscard]] std::string kind_of(generator::Problem problem);

/// A panel for each kind, a line for each dtype, and the ceiling. Where a width was timed with several numbers of
/// rows, each number has a line of its own.
[[nodiscard]] std::vector<PlotPanel> panels_of(std::span<const Throughput> throughputs);

}  // namespace ce::cli
