#pragma once
/// \file
/// How fast problems were with other software, as pieces of a report's page.

#include <string>

#include "cli/report/data.hpp"

namespace ce::cli {

/// The verdict in a word, and the change of the time where that is not the same.
[[nodiscard]] std::string verdict_badge(const tuner::Finding& finding);

/// One sentence with the number of problems of each verdict; empty where nothing can be compared.
[[nodiscard]] std::string verdicts_html(const ReportedDevice& device);

/// The problems that were measured with several kinds of software: slower ones first. Empty where there are none.
[[nodiscard]] std::string history_html(const ReportedDevice& device);

}  // namespace ce::cli
