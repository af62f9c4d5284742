#pragma once
/// \file
/// Measurements in the forms that the database stores, as one line of JSON, and their identities.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/measurement.hpp"

namespace ce::cache {

/// Encodes samples as 32-bit floats, least significant byte first.
[[nodiscard]] std::vector<std::byte> encode_samples(std::span<const float> samples);
[[nodiscard]] std::vector<float> decode_samples(std::span<const std::byte> bytes);
[[nodiscard]] constexpr std::size_t count_of_samples(std::span<const std::byte> bytes) noexcept {
  return bytes.size() / sizeof(float);
}
/// \param number  index of the sample, below their count
[[nodiscard]] float sample_at(std::span<const std::byte> bytes, std::size_t number) noexcept;

/// Encodes an environment as one JSON object. Bytes that are not UTF-8 (a driver may report anything) become U+FFFD.
[[nodiscard]] std::string encode_environment(const std::map<std::string, std::string>& environment);
[[nodiscard]] std::map<std::string, std::string> decode_environment(const std::string& text);

/// Whether the text is a time as utc_now() writes it: measurements are sorted by this text.
[[nodiscard]] bool is_time(std::string_view text) noexcept;

/// A measurement whose texts and bytes are stored elsewhere: in a row of the database, or in a Measurement.
struct MeasurementView {
  std::string_view problem, device, config, template_digest, compile_key, outcome, reason;
  std::int64_t stage = 0, rows = 0, bytes = 0;
  std::span<const std::byte> samples;  ///< as encode_samples() writes them
  double median_us = 0, spread = 0;
  std::int64_t registers = 0, local_bytes = 0;
  std::string_view environment;  ///< as encode_environment() writes it
  std::string_view created_at;
};

/// A view of a measurement, with its samples and environment encoded.
class EncodedMeasurement {
 public:
  /// \param m  outlives this
  explicit EncodedMeasurement(const Measurement& m);
  EncodedMeasurement(const EncodedMeasurement&) = delete;
  EncodedMeasurement& operator=(const EncodedMeasurement&) = delete;

  [[nodiscard]] const MeasurementView& view() const noexcept { return view_; }

 private:
  const std::vector<std::byte> samples_;
  const std::string environment_;
  const MeasurementView view_;
};

/// Appends to_json() of the same measurement.
void append_json(std::string& text, const MeasurementView& measurement);

/// The whole measurement as one JSON object without a newline; equal measurements give equal texts. A figure that is
/// not a finite number is null, bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string to_json(const Measurement& measurement);
/// \throws InvalidArgument naming the field, std::exception for text that is not JSON
[[nodiscard]] Measurement from_json(std::string_view text);

/// \param environment  the environment of the view
[[nodiscard]] Measurement measurement_of(const MeasurementView& view, const Environment& environment);

/// The result of from_json() as a view of the line. Usually only the samples are copied.
class ParsedMeasurement {
 public:
  /// \param line  outlives this \throws as from_json()
  explicit ParsedMeasurement(std::string_view line);

  [[nodiscard]] const MeasurementView& view() const noexcept { return view_; }

 private:
  /// Fields that the line has in another form.
  struct Odd {
    explicit Odd(Measurement&& parsed) : measurement(std::move(parsed)), encoded(measurement) {}
    const Measurement measurement;
    const EncodedMeasurement encoded;
  };

  std::vector<std::byte> samples_;
  std::unique_ptr<Odd> odd_;
  MeasurementView view_;
};

/// The identity of a line that to_json() has written.
[[nodiscard]] std::string identity_of_line(std::string_view line);
/// The digest of to_json(). A database that has this digest has the measurement.
[[nodiscard]] std::string identity_of(const Measurement& measurement);

/// The digest that is stored with a binary. It covers its bytes and its compile key, since a damaged index may lead to
/// another row.
[[nodiscard]] std::string digest_of_binary(std::string_view compile_key, std::span<const std::byte> image);

}  // namespace ce::cache
