#pragma once
/// \file
/// What a report says first: has anything become slower, by what, and which devices need a look?

#include <string>

#include "cli/report/data.hpp"
#include "cli/report/redaction.hpp"

namespace ce::cli {

/// The verdict in a sentence, what it comes from, and the devices. For a report with problems.
[[nodiscard]] std::string overview_html(const ReportData& report, const Redaction& redaction);

/// The problems that changed, by cause. Empty where nothing can be compared.
[[nodiscard]] std::string causes_html(const ReportData& report, const Redaction& redaction);

}  // namespace ce::cli
