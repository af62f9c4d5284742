#pragma once
/// \file
/// The start of a report: has anything become slower, what is the cause, and which devices need attention?

#include <string>
#include <vector>

#include "cli/report/causes.hpp"
#include "cli/report/data.hpp"
#include "cli/report/redaction.hpp"

namespace ce::cli {

/// The verdict in a sentence, the compared data, and the devices. For a report with problems.
/// \param causes  causes in the report
[[nodiscard]] std::string overview_html(const ReportData& report, const std::vector<Cause>& causes,
                                        const Redaction& redaction);

/// The changed problems, by cause. Empty if nothing can be compared.
/// \param with_device  whether the report has several devices
[[nodiscard]] std::string causes_html(const std::vector<Cause>& causes, bool with_device,
                                      const Redaction& redaction);

}  // namespace ce::cli
