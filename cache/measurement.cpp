#include "cache/measurement.hpp"

#include "base/digest.hpp"

namespace ce::cache {

std::string Key::id() const { return digest({problem, device}).substr(0, 12); }

std::string_view name(Outcome outcome) noexcept {
  return outcome == Outcome::measured ? "measured" : "quarantined";
}

}  // namespace ce::cache
