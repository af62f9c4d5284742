#pragma once
/// \file
/// What a report draws of a device: shares of the ceiling, variants, and times over the years.

#include <string>
#include <utility>
#include <vector>

#include "cli/report/data.hpp"
#include "cli/report/redaction.hpp"

namespace ce::cli {

using Problems = std::vector<const ReportedProblem*>;
/// Problems by what kind_of() says of them, in the order of their device. Races have
/// the kind "races", those that another version wrote "".
using Kinds = std::vector<std::pair<std::string, Problems>>;

/// A line chart for each kind and dtype: the winners' share of the ceiling over the columns, a line for each number of
/// rows. GB/s where no ceiling is on record.
[[nodiscard]] std::string shares_html(const Kinds& kinds);

/// A heat map for each kind and dtype: how far the fastest config of each variant is behind the winner.
[[nodiscard]] std::string variants_html(const Kinds& kinds);

/// A line chart for each kind and dtype: how the times of the winners changed, a line for each problem.
[[nodiscard]] std::string times_html(const Kinds& kinds, const Redaction& redaction);

}  // namespace ce::cli
