#pragma once
/// \file
/// The source location of an error.

#include <cstdint>

#include "ce/language.hpp"

namespace ce {

/// A source location. Replaces std::source_location, which clang 14 and 15 do not have with libstdc++.
class SourceLocation {
 public:
  /// The location of the call, if this is a default argument.
  [[nodiscard]] static constexpr SourceLocation current(
      const char* file = __builtin_FILE(), const char* function = __builtin_FUNCTION(),
      std::uint_least32_t line = __builtin_LINE()) noexcept {
    return {file, function, line};
  }

  [[nodiscard]] constexpr const char* file_name() const noexcept { return file_; }
  [[nodiscard]] constexpr const char* function_name() const noexcept { return function_; }
  [[nodiscard]] constexpr std::uint_least32_t line() const noexcept { return line_; }

 private:
  constexpr SourceLocation(const char* file, const char* function, std::uint_least32_t line) noexcept
      : file_(file), function_(function), line_(line) {}

  const char* file_;
  const char* function_;
  std::uint_least32_t line_;
};

}  // namespace ce
