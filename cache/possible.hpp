#pragma once
/// \file
/// Measurements that can be: those of others are served to programs that trust what they say.

#include <string>

#include "cache/codec.hpp"
#include "cache/measurement.hpp"

namespace ce::cache {

/// \throws InvalidArgument naming the first field that no search writes, its value and what it can be
void expect_possible(const Measurement& measurement);
void expect_possible(const MeasurementView& measurement);
/// The message of that; empty for one that can be.
[[nodiscard]] std::string why_impossible(const Measurement& measurement);
[[nodiscard]] std::string why_impossible(const MeasurementView& measurement);
/// Whether it can be, of what is known of a finalist.
[[nodiscard]] bool is_possible(const Finalist& finalist) noexcept;

}  // namespace ce::cache
