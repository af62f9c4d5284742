#pragma once
/// \file
/// Quantities as people write and read them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ce::cli {

/// A value as an error names it: "text" between double quotes.
[[nodiscard]] std::string in_quotes(std::string_view text);

/// "4GiB", "512 MiB", "1.5GB" or plain bytes.
/// \throws InvalidArgument naming `argument`
[[nodiscard]] std::int64_t parse_size(std::string_view argument, std::string_view text);

/// Seconds of "90s", "10m" or "1.5h".
/// \throws InvalidArgument naming `argument`
[[nodiscard]] double parse_duration(std::string_view argument, std::string_view text);

/// A whole number from `least` to `most`.
/// \throws InvalidArgument naming `argument`
[[nodiscard]] std::int64_t parse_count(std::string_view argument, std::string_view text, std::int64_t least,
                                       std::int64_t most);

/// \throws InvalidArgument naming `argument` for what is no number, and for none that is finite in f32
[[nodiscard]] float parse_amount(std::string_view argument, std::string_view text);

/// The parts between commas of each text, with repetitions dropped.
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
