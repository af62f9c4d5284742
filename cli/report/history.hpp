#pragma once
/// \file
/// How fast a problem was with other software, as pieces of a report's page.

#include <string>

#include "cli/report/data.hpp"
#include "cli/report/redaction.hpp"

namespace ce::cli {

/// The verdict in a word, and the change of the time where that is not the same.
[[nodiscard]] std::string verdict_badge(const tuner::Finding& finding);

/// "1.031 .. 1.070"; of an interval that says nothing a word.
[[nodiscard]] std::string interval_html(const tuner::Comparison& comparison);

/// A table of the kinds of software that a problem was measured with; empty where it was one.
[[nodiscard]] std::string periods_html(const ReportedProblem& reported, const Redaction& redaction);

}  // namespace ce::cli
