#pragma once
/// \file
/// A report for programs. The fields are documented in docs/json.md.

#include "cli/json.hpp"
#include "cli/report/data.hpp"

namespace ce::cli {

[[nodiscard]] Json json_of(const ReportData& report);

}  // namespace ce::cli
