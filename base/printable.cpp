#include "base/printable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace ce {
namespace {

unsigned byte_at(std::string_view text, std::size_t at) {
  return at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
}

/// Bytes of the UTF-8 character that the text begins with; 0 if it begins with none.
std::size_t character_size(std::string_view text) {
  const unsigned first = byte_at(text, 0), second = byte_at(text, 1);
  if (first < 0x80) return 1;
  const std::size_t size = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  for (std::size_t i = 1; i < size; ++i)
    if ((byte_at(text, i) & 0xC0U) != 0x80) return 0;
  const bool too_long = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second >= 0xA0;
  const bool too_large = first == 0xF4 && second >= 0x90;
  return too_long || surrogate || too_large ? 0 : size;
}

/// The code point of a character of two or three bytes; 0 for four bytes, none of which a terminal obeys.
unsigned code_point(std::string_view character) {
  const auto bits = [&](std::size_t at) { return byte_at(character, at) & 0x3FU; };
  if (character.size() == 2) return (byte_at(character, 0) & 0x1FU) << 6U | bits(1);
  if (character.size() == 3) return (byte_at(character, 0) & 0x0FU) << 12U | bits(1) << 6U | bits(2);
  return 0;
}

bool is_obeyed(unsigned point) {
  const auto within = [point](unsigned first, unsigned last) { return first <= point && point <= last; };
  return within(0x80, 0x9F) || point == 0x061C || within(0x200E, 0x200F) || within(0x2028, 0x202E) ||
         within(0x2066, 0x2069);
}

/// \param character  UTF-8, or one byte that is not
std::string shown(std::string_view character, bool valid, Lines lines) {
  const unsigned byte = byte_at(character, 0);
  if (byte == '\n' || byte == '\t') {
    if (lines == Lines::many) return std::string(character);
    return byte == '\n' ? "\\n" : "\\t";
  }
  if (!valid || byte < 0x20 || byte == 0x7F) return fmt::format("\\x{:02x}", byte);
  const unsigned point = code_point(character);
  return is_obeyed(point) ? fmt::format("\\u{:04x}", point) : std::string(character);
}

bool is_plain(char c) { return c >= ' ' && c <= '~'; }

}  // namespace

std::string printable(std::string_view text, Lines lines) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const auto plain =
        static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_plain) - text.begin());
    result += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    const std::size_t size = character_size(text);
    result += shown(text.substr(0, std::max<std::size_t>(size, 1)), size > 0, lines);
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return result;
}

}  // namespace ce
