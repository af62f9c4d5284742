#pragma once
/// \file
/// Whether a measurement can be trusted, and whether its search was finished.

#include <string>

#include "cache/cache.hpp"

namespace ce::tuner {

/// Why a measurement is not trusted, in words: lowered clocks, other processes on the GPU, an unsteady machine. Empty
/// if there is no reason.
[[nodiscard]] std::string doubt_of(const cache::Measurement& measurement);

/// Why a search ended early: its budget or slow compilers left too few configs. Empty if it did not.
[[nodiscard]] std::string cut_short_by(const cache::Measurement& final);

/// Why the search of this final should continue: it was cut short, or its measurements are in doubt. Empty if it is
/// finished.
[[nodiscard]] std::string unfinished_because(const cache::Measurement& final);

}  // namespace ce::tuner
