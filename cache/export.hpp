#pragma once
/// \file
/// A text format for copying measurements: one JSON object a line. The first is {"format", "version"}, then come the
/// measurements as in to_json(), and the last is {"measurements", "digest"}: their number, and the digest of their
/// identities.

#include <cstddef>
#include <functional>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/codec.hpp"
#include "cache/measurement.hpp"

namespace ce::cache {

/// Writes an export as its measurements come.
class ExportWriter {
 public:
  explicit ExportWriter(std::ostream& out);
  /// \param line  to_json() of a measurement, \param identity  its identity
  void add(std::string_view line, std::string_view identity);
  /// Writes the last line, which shows that the text is complete.
  void end();

 private:
  static constexpr std::size_t written_at_once = std::size_t{1} << 20;
  void write();

  std::ostream& out_;
  std::string waiting_;
  std::size_t count_ = 0;
  std::string identities_;  ///< one after the other, 32 digits each
};

void write_export(std::ostream& out, std::span<const Measurement> list);

/// Visits measurements in the order of the lines; threads parse ahead.
/// \param name  name of the stream, for messages
/// \throws InvalidArgument naming a line that does not belong to an export or follows its end; the last line if the end
/// is missing; the end if the lines before it were changed; or line and field of an impossible measurement (see
/// possible.hpp). The caller must then discard the visited measurements.
void visit_export(std::istream& in, const std::string& name,
                  const std::function<void(const MeasurementView&, std::string_view identity)>& visit);
/// Returns the measurements as a list.
[[nodiscard]] std::vector<Measurement> read_export(std::istream& in, const std::string& name);
/// The number of measurements according to the last line; 0 if the end is missing. Leaves the stream at its end.
[[nodiscard]] std::size_t announced_measurements(std::istream& in);

}  // namespace ce::cache
