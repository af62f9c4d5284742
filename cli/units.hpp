#pragma once
/// \file
/// Parses and formats quantities for people.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ce::cli {

/// A value in an error message, in double quotes.
[[nodiscard]] std::string in_quotes(std::string_view text);

/// Parses bytes: "4GiB", "512 MiB", "1.5GB" or a plain number.
/// \throws InvalidArgument naming `argument`
[[nodiscard]] std::int64_t parse_size(std::string_view argument, std::string_view text);

/// Parses seconds: "90s", "10m" or "1.5h".
/// \throws InvalidArgument naming `argument`
[[nodiscard]] double parse_duration(std::string_view argument, std::string_view text);

/// Parses a whole number from `least` to `most`.
/// \throws InvalidArgument naming `argument`
[[nodiscard]] std::int64_t parse_count(std::string_view argument, std::string_view text, std::int64_t least,
                                       std::int64_t most);

/// \throws InvalidArgument naming `argument` for text that is not a number, or not finite in f32
[[nodiscard]] float parse_amount(std::string_view argument, std::string_view text);

/// The parts between commas of all texts, without repetitions.
/// \throws InvalidArgument naming `argument` for an empty part
[[nodiscard]] std::vector<std::string> split_list(std::string_view argument,
                                                  const std::vector<std::string>& texts);

/// "8.3 us", "1.24 ms".
[[nodiscard]] std::string time_text(double microseconds);
/// 1e9 bytes a second: "3110", "2.69".
[[nodiscard]] std::string throughput_text(double gbs);
/// "4.0 GiB".
[[nodiscard]] std::string size_text(std::int64_t bytes);
/// "42 s", "3 min 05 s", "2 h 10 min".
[[nodiscard]] std::string duration_text(double seconds);
/// "3.2%".
[[nodiscard]] std::string percent_text(double share);
/// "1 config", "3 configs".
[[nodiscard]] std::string counted(std::int64_t count, std::string_view noun);

}  // namespace ce::cli
