#pragma once
/// \file
/// A report's figures of a device: shares of the ceiling, variants, and times over the years.

#include <string>
#include <utility>
#include <vector>

#include "cli/report/data.hpp"
#include "cli/report/redaction.hpp"

namespace ce::cli {

using Problems = std::vector<const ReportedProblem*>;
/// Problems grouped by kind_of(), in the device's order. Races have the kind "races", keys of other versions "".
using Kinds = std::vector<std::pair<std::string, Problems>>;

/// A line chart for each kind and dtype: the winners' share of the ceiling over the columns, with a line for each
/// number of rows; GB/s if there is no ceiling.
[[nodiscard]] std::string shares_html(const Kinds& kinds);

/// A heat map for each kind and dtype: the distance of each variant's fastest config from the winner.
[[nodiscard]] std::string variants_html(const Kinds& kinds);

/// A line chart for each kind and dtype: the winners' times over the years, with a line for each problem.
[[nodiscard]] std::string times_html(const Kinds& kinds, const Redaction& redaction);

}  // namespace ce::cli
