#pragma once
/// \file
/// Measurements as text to carry: one JSON object a line, first {"format", "version"}, then the measurements as
/// to_json() has them, last {"measurements", "digest"}: their number, and the digest of their identities.

#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "cache/measurement.hpp"

namespace ce::cache {

void write_export(std::ostream& out, std::span<const Measurement> list);

/// \param name  of the stream, for messages
/// \throws InvalidArgument naming the line that is none of an export or behind its end, the last one where the end is
/// missing, the end where what stands before it was changed, or line and field of a measurement that cannot be (see
/// possible.hpp)
[[nodiscard]] std::vector<Measurement> read_export(std::istream& in, const std::string& name);

}  // namespace ce::cache
