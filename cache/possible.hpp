#pragma once
/// \file
/// Rejects impossible measurements: foreign ones are served to programs that trust them.

#include <string>

#include "cache/codec.hpp"
#include "cache/measurement.hpp"

namespace ce::cache {

/// \throws InvalidArgument naming the first field that no search would write, its value and the valid ones
void expect_possible(const Measurement& measurement);
void expect_possible(const MeasurementView& measurement);
/// The message of that error; empty for a possible measurement.
[[nodiscard]] std::string why_impossible(const Measurement& measurement);
[[nodiscard]] std::string why_impossible(const MeasurementView& measurement);
/// Whether a finalist is possible, by its known fields.
[[nodiscard]] bool is_possible(const Finalist& finalist) noexcept;

}  // namespace ce::cache
