#pragma once
/// \file
/// What stands behind one winner, as a piece of a report's page.

#include <string>

#include "cli/report/data.hpp"
#include "cli/report/redaction.hpp"

namespace ce::cli {

/// Why it won; each config that is reported with its samples and environment; how fast it was with other software; what was rejected; and how to ask more.
[[nodiscard]] std::string details_html(const ReportedProblem& reported, const Redaction& redaction);

/// How to ask for all of that.
[[nodiscard]] std::string commands_html(const ReportedProblem& reported);

}  // namespace ce::cli
