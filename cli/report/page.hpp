#pragma once
/// \file
/// A report as one page of HTML that loads nothing.

#include <cstddef>
#include <iosfwd>

#include "cli/report/data.hpp"
#include "cli/report/redaction.hpp"

namespace ce::cli {

/// Writes a complete document, which is also well-formed XML behind its doctype, piece by piece.
/// \returns its bytes
std::size_t write_page(const ReportData& report, const Redaction& redaction, std::ostream& stream);

}  // namespace ce::cli
