#include "tests/cli/xml.hpp"

#include <array>
#include <cctype>
#include <set>
#include <utility>
#include <vector>

namespace ce::cli::test {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view document) : rest_(document) {}

  XmlContents read() {
    skip_space();
    do {
      if (rest_.starts_with("</"))
        end_tag();
      else if (rest_.starts_with('<'))
        start_tag();
      else
        contents_.text += character();
    } while (!open_.empty());
    skip_space();
    expect(rest_.empty(), "something after the root element");
    return std::move(contents_);
  }

 private:
  void expect(bool good, const std::string& problem) const {
    if (!good) throw std::runtime_error(problem + " at: " + std::string(rest_.substr(0, 60)));
  }
  void take(std::string_view token) {
    expect(rest_.starts_with(token), "expected " + std::string(token));
    rest_.remove_prefix(token.size());
  }
  void skip_space() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_.front())) != 0)
      rest_.remove_prefix(1);
  }
  std::string take_name() {
    std::size_t length = 0;
    while (length < rest_.size() && (std::isalnum(static_cast<unsigned char>(rest_[length])) != 0 ||
                                     rest_[length] == '-' || rest_[length] == ':'))
      ++length;
    expect(length > 0, "expected a name");
    std::string name(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return name;
  }
  char character() {
    expect(!open_.empty() && !rest_.empty(), "text or an end outside of the root element");
    constexpr std::array<std::pair<std::string_view, char>, 4> entities{
        {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}}};
    for (const auto& [entity, meaning] : entities)
      if (rest_.starts_with(entity)) {
        rest_.remove_prefix(entity.size());
        return meaning;
      }
    const char c = rest_.front();
    expect(c != '&' && c != '<', "a bare & or <");
    rest_.remove_prefix(1);
    return c;
  }
  void start_tag() {
    take("<");
    const std::string name = take_name();
    ++contents_.elements[name];
    open_.push_back(name);
    std::set<std::string> attributes;
    for (skip_space(); !rest_.starts_with('>') && !rest_.starts_with("/>"); skip_space()) {
      const std::string attribute = take_name();
      expect(attributes.insert(attribute).second, attribute + " twice");
      take("=\"");
      while (!rest_.starts_with('"')) static_cast<void>(character());
      take("\"");
    }
    if (rest_.starts_with("/>")) {
      take("/>");
      open_.pop_back();
    } else {
      take(">");
    }
  }
  void end_tag() {
    take("</");
    expect(!open_.empty(), "an end tag without its start");
    take(open_.back());
    take(">");
    open_.pop_back();
  }

  std::string_view rest_;
  std::vector<std::string> open_;
  XmlContents contents_;
};

}  // namespace

XmlContents read_xml(std::string_view document) { return Reader(document).read(); }

}  // namespace ce::cli::test
