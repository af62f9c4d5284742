#pragma once
/// \file
/// The kernel templates, which are embedded into the program.

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ce::generator {

/// The text of templates/`file`.
/// \throws NotFound
[[nodiscard]] std::string_view template_text(std::string_view file);

/// The files that the text includes, directly or not, by name.
[[nodiscard]] std::map<std::string, std::string> included_files(std::string_view text);

/// The text as a compiler reads it: without comments, blank lines and redundant spaces. Texts that differ only in these
/// have the same digests.
[[nodiscard]] std::string without_comments(std::string_view text);

/// Whether templates/`file` exists and has this text.
[[nodiscard]] bool is_template(std::string_view file, std::string_view text) noexcept;

/// without_comments() of templates/`file`, computed once. \throws NotFound
[[nodiscard]] std::string_view template_code(std::string_view file);

/// One "// axis NAME = value value ..." line of a template.
struct AxisLine {
  std::string axis;
  std::vector<std::string> values;
};

[[nodiscard]] std::vector<AxisLine> axis_lines(std::string_view text);

}  // namespace ce::generator
