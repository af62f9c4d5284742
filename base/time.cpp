#include "base/time.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace ce {

std::string utc_now() {
  std::timespec now{};
  static_cast<void>(std::timespec_get(&now, TIME_UTC));
  return utc_text(now);
}

std::string utc_text(const std::timespec& clock) {
  constexpr std::int64_t first = -62'167'219'200, last = 253'402'300'799;  // the years 0000 and 9999
  constexpr long in_a_millisecond = 1'000'000;
  const std::time_t seconds = std::clamp<std::int64_t>(clock.tv_sec, first, last);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     seconds == clock.tv_sec ? clock.tv_nsec / in_a_millisecond : 0);
}

}  // namespace ce
