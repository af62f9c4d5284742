#pragma once
/// \file
/// Names for texts and bytes.

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace ce {

/// 32 hexadecimal digits (XXH3, 128 bits) over the parts and their lengths, so that
/// {"ab", "c"} and {"a", "bc"} differ. Finds accidents and damage; it is no defence against forgery.
[[nodiscard]] std::string digest_of(std::span<const std::string_view> parts);
[[nodiscard]] inline std::string digest(std::initializer_list<std::string_view> parts) {
  return digest_of({parts.begin(), parts.size()});
}

}  // namespace ce
