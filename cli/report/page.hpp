#pragma once
/// \file
/// A report as one page of HTML that loads nothing.

#include <string>

#include "cli/report/data.hpp"

namespace ce::cli {

/// A complete document, which is also well-formed XML behind its doctype.
[[nodiscard]] std::string page_of(const ReportData& report);

}  // namespace ce::cli
