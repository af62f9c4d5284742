#pragma once
/// \file
/// The details of one winner, as part of a report's page.

#include <string>

#include "cli/report/data.hpp"
#include "cli/report/redaction.hpp"

namespace ce::cli {

/// Why it won; each listed config with its samples and environment; its times with other software; rejections; and
/// commands for more.
[[nodiscard]] std::string details_html(const ReportedProblem& reported, const Redaction& redaction);

/// Commands for further details.
[[nodiscard]] std::string commands_html(const ReportedProblem& reported);

}  // namespace ce::cli
