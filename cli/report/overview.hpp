#pragma once
/// \file
/// What a report says first: has anything become slower, by what, and which devices need a look?

#include <string>
#include <vector>

#include "cli/report/causes.hpp"
#include "cli/report/data.hpp"
#include "cli/report/redaction.hpp"

namespace ce::cli {

/// The verdict in a sentence, what it comes from, and the devices. For a report with problems.
/// \param causes  those of the report
[[nodiscard]] std::string overview_html(const ReportData& report, const std::vector<Cause>& causes,
                                        const Redaction& redaction);

/// The problems that changed, by cause. Empty where nothing can be compared.
/// \param with_device  whether the report has several
[[nodiscard]] std::string causes_html(const std::vector<Cause>& causes, bool with_device,
                                      const Redaction& redaction);

}  // namespace ce::cli
