#pragma once
/// \file
/// A page is mailed: what it says of the machines that it comes from.

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace ce::cli {

/// Takes names of hosts, paths and addresses of the web out of texts. Each host keeps one name, "[host 1]", on the whole
/// page, so that a reader still sees which measurements are of the same one.
class Redaction {
 public:
  /// Takes out nothing.
  Redaction() = default;
  /// \param hosts  their names, as environments of measurements have them; of "node17.example.org" also "node17" is one
  explicit Redaction(const std::set<std::string>& hosts);

  [[nodiscard]] std::string text(std::string_view whole) const;
  /// The same, fit for a page.
  [[nodiscard]] std::string html(std::string_view text) const;
  /// Of the file at a path nothing but its name; where nothing is taken out, the path.
  [[nodiscard]] std::string file(const std::string& path) const;

 private:
  [[nodiscard]] std::string shown_for(std::string_view name) const;

  bool is_on_ = false;
  std::map<std::string, std::string, std::less<>> hosts_;  ///< what is shown for a name
};

}  // namespace ce::cli
