#pragma once
/// \file
/// The style and script of a report's page.

#include <string_view>

namespace ce::cli {

/// The style sheet, page.css: light or dark by the reader's preference, wide and narrow.
extern const std::string_view report_style;

/// The script, page.js: filter, sorting and links.
extern const std::string_view report_script;

/// The hash by which a content security policy allows that script: its SHA-256 in base64.
extern const std::string_view report_script_digest;

}  // namespace ce::cli
