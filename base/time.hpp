#pragma once
/// \file
/// Times as text.

#include <ctime>
#include <string>

namespace ce {

/// Now, as "2030-01-31T12:00:00.000Z".
[[nodiscard]] std::string utc_now();

/// The time of a clock in the same form, limited to the years 0000 to 9999: longer texts would not sort by time.
[[nodiscard]] std::string utc_text(const std::timespec& clock);

}  // namespace ce
