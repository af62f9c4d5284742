#pragma once
/// \file
/// A problem's times with other software, as parts of a report's page.

#include <string>

#include "cli/report/data.hpp"
#include "cli/report/redaction.hpp"

namespace ce::cli {

/// The verdict in a word, and the change of the time unless it is the same.
[[nodiscard]] std::string verdict_badge(const tuner::Finding& finding);

/// "1.031 .. 1.070"; a word for an unbounded interval.
[[nodiscard]] std::string interval_html(const tuner::Comparison& comparison);

/// A table of the software versions of a problem's measurements; empty if there is one.
[[nodiscard]] std::string periods_html(const ReportedProblem& reported, const Redaction& redaction);

}  // namespace ce::cli
