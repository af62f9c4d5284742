#pragma once
/// \file
/// How a report looks, and the little that it does.

#include <string_view>

namespace ce::cli {

/// Style sheet, page.css: light and dark by the reader's preference, wide and narrow.
extern const std::string_view report_style;

/// page.js: filter, order and links.
extern const std::string_view report_script;

/// What a content security policy allows that script by: its SHA-256 in base64.
extern const std::string_view report_script_digest;

}  // namespace ce::cli
