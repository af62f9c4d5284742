#include "tuner/quarantine_reason.hpp"

#include <fmt/format.h>

#include <cstddef>

namespace ce::tuner {

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

std::string kept_reason(std::string reason) {
  constexpr std::size_t longest = std::size_t{64} << 10, longest_mark = 64;
  if (reason.size() <= longest) return reason;
  const auto is_inside_character = [&](std::size_t at) {
    return at < reason.size() && (static_cast<unsigned char>(reason[at]) & 0xC0U) == 0x80U;
  };
  std::size_t head = (longest - longest_mark) / 2, tail = reason.size() - head;
  for (int bytes = 0; bytes < 3 && is_inside_character(head); ++bytes) --head;
  for (int bytes = 0; bytes < 3 && is_inside_character(tail); ++bytes) ++tail;
  return fmt::format("{}\n[... {} bytes left out ...]\n{}", std::string_view(reason).substr(0, head),
                     tail - head, std::string_view(reason).substr(tail));
}

}  // namespace ce::tuner
