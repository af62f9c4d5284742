#pragma once
/// \file
/// Measurements as text to carry: one JSON object a line, first {"format", "version"}, then the measurements as
/// to_json() has them, last {"measurements", "digest"}: their number, and the digest of their identities.

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
  /// \param line  to_json() of a measurement, \param identity  of it
  void add(std::string_view line, std::string_view identity);
  /// What shows that the text is whole.
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

/// Visits measurements in the order of the lines, which threads parse ahead.
/// \param name  of the stream, for messages
/// \throws InvalidArgument naming the line that is none of an export or behind its end, the last one where the end is
/// missing, the end where what stands before it was changed, or line and field of a measurement that cannot be (see
/// possible.hpp)
/// What was visited before that is to be forgotten then.
void visit_export(std::istream& in, const std::string& name,
                  const std::function<void(const MeasurementView&, std::string_view identity)>& visit);
/// The same as a list.
[[nodiscard]] std::vector<Measurement> read_export(std::istream& in, const std::string& name);
/// How many measurements the end of an export speaks of; 0 where there is no end. Leaves the stream there.
[[nodiscard]] std::size_t announced_measurements(std::istream& in);

}  // namespace ce::cache
