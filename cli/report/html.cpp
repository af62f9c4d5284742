#include "cli/report/html.hpp"

#include "base/printable.hpp"

namespace ce::cli {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text, Lines::many)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace ce::cli
