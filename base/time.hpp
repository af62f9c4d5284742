#pragma once
/// \file
/// Times as texts.

#include <ctime>
#include <string>

namespace ce {

/// Now, as "2030-01-31T12:00:00.000Z".
[[nodiscard]] std::string utc_now();

/// The same of a clock, or the nearest of the years 0000 to 9999: with more digits the text would not be in order.
[[nodiscard]] std::string utc_text(const std::timespec& clock);

}  // namespace ce
