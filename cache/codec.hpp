#pragma once
/// \file
/// Measurements as the database stores them and as one line of JSON, and what tells two of them apart.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/measurement.hpp"

namespace ce::cache {

/// 32-bit floats, least significant byte first.
[[nodiscard]] std::vector<std::byte> encode_samples(std::span<const float> samples);
[[nodiscard]] std::vector<float> decode_samples(std::span<const std::byte> bytes);

/// One JSON object. Bytes that are no UTF-8 (a driver may report anything) become U+FFFD.
[[nodiscard]] std::string encode_environment(const std::map<std::string, std::string>& environment);
[[nodiscard]] std::map<std::string, std::string> decode_environment(const std::string& text);

/// Whether it is a time as utc_now() writes it: measurements are ordered by this text.
[[nodiscard]] bool is_time(std::string_view text) noexcept;

/// A measurement as texts and bytes that lie elsewhere: in a row of the database, or in a Measurement.
struct MeasurementView {
  std::string_view problem, device, config, template_digest, compile_key, outcome, reason;
  std::int64_t stage = 0, rows = 0, bytes = 0;
  std::span<const std::byte> samples;  ///< as encode_samples() writes them
  double median_us = 0, spread = 0;
  std::int64_t registers = 0, local_bytes = 0;
  std::string_view environment;  ///< as encode_environment() writes it
  std::string_view created_at;
};

/// Appends what to_json() says of the same measurement.
void append_json(std::string& text, const MeasurementView& measurement);

/// All of a measurement as one JSON object without a newline; equal measurements give equal texts. A figure
/// that is not a finite number is null, bytes that are no UTF-8 become U+FFFD.
[[nodiscard]] std::string to_json(const Measurement& measurement);
/// \throws InvalidArgument naming the field, std::exception for what is no JSON
[[nodiscard]] Measurement from_json(std::string_view text);

/// Of what to_json() has written.
[[nodiscard]] std::string identity_of_line(std::string_view line);
/// The digest of to_json(). A database that has it has this measurement already.
[[nodiscard]] std::string identity_of(const Measurement& measurement);

/// The digest that is stored with a binary: of its bytes and of what it is for, since an index that is damaged leads to
/// the row of another one.
[[nodiscard]] std::string digest_of_binary(std::string_view compile_key, std::span<const std::byte> image);

}  // namespace ce::cache
