#pragma once
/// \file
/// A report as JSON. docs/json.md documents the fields.

#include "cli/json.hpp"
#include "cli/report/data.hpp"

namespace ce::cli {

[[nodiscard]] Json json_of(const ReportData& report);

}  // namespace ce::cli
