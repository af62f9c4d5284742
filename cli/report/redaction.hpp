#pragma once
/// \file
/// Removes machine names from a page that will be mailed.

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace ce::cli {

/// Removes host names, paths and web addresses from texts. Each host has one name, "[host 1]", on the whole page, so
/// that a reader still sees which measurements are of the same host.
class Redaction {
 public:
  /// Removes nothing.
  Redaction() = default;
  /// \param hosts  host names from measurements' environments; "node17.example.org" also covers "node17"
  explicit Redaction(const std::set<std::string>& hosts);

  [[nodiscard]] std::string text(std::string_view whole) const;
  /// The redacted text, escaped for a page.
  [[nodiscard]] std::string html(std::string_view text) const;
  /// The file name of a path; the whole path if nothing is redacted.
  [[nodiscard]] std::string file(const std::string& path) const;

 private:
  [[nodiscard]] std::string shown_for(std::string_view name) const;

  bool is_on_ = false;
  std::map<std::string, std::string, std::less<>> hosts_;  ///< replacement of each name
};

}  // namespace ce::cli
