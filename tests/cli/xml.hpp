#pragma once
/// \file
/// Enough of XML to see whether a document is well formed, and what it holds.

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ce::cli::test {

/// Elements by name, and the text between tags, entities resolved.
struct XmlContents {
  std::map<std::string, int> elements;
  std::string text;
};

/// \throws std::runtime_error for tags that do not match, attributes without quotes, a bare < or &, an
/// attribute given twice, or anything beside the one root element
[[nodiscard]] XmlContents read_xml(std::string_view document);

}  // namespace ce::cli::test
