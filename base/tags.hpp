#pragma once
/// \file
/// Tags that users put on measurements: job, image, commit.

#include <map>
#include <string>
#include <string_view>

namespace ce {

using Tags = std::map<std::string, std::string>;

/// "k=v" or "k=v,k=v": names of 1 to 64 letters, digits, '_', '-' and '.', values of 1 to 256 printable ASCII characters
/// but a comma, a quotation mark or a backslash; 32 at most.
/// \throws InvalidArgument naming `argument`
[[nodiscard]] Tags parse_tags(std::string_view argument, std::string_view text);

/// The tags of CE_TAG. \throws InvalidArgument naming it
[[nodiscard]] Tags tags_of_environment();

/// The name of a tag in a measurement's environment: "tag.job".
[[nodiscard]] std::string environment_name_of_tag(std::string_view name);

}  // namespace ce
