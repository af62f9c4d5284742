#pragma once
/// \file
/// Selects measurements since a day or a version.

#include <functional>
#include <string>

#include "cache/measurement.hpp"

namespace ce::cli {

/// Whether a measurement is of that day or later, or of that version of ce or a later one.
/// \param since  "2030-01-31", optionally with a time, in UTC, or "0.2.0"
/// \throws InvalidArgument naming --since
[[nodiscard]] std::function<bool(const cache::Measurement&)> newer_than(const std::string& since);

}  // namespace ce::cli
