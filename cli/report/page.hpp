#pragma once
/// \file
/// A report as one page of HTML that loads nothing.

#include <cstddef>
#include <iosfwd>

#include "cli/report/data.hpp"
#include "cli/report/redaction.hpp"

namespace ce::cli {

/// Writes a complete document, piece by piece. Apart from its doctype it is also well-formed XML.
/// \returns its bytes
std::size_t write_page(const ReportData& report, const Redaction& redaction, std::ostream& stream);

}  // namespace ce::cli
