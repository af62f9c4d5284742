#include "ce/policy.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "base/environment.hpp"
#include "ce/error.hpp"

namespace ce {

std::string_view name(Policy policy) noexcept {
  switch (policy) {
    case Policy::tune: return "tune";
    case Policy::lookup: return "lookup";
    case Policy::frozen: return "frozen";
    case Policy::background: return "background";
  }
  return "?";
}

Policy parse_policy(std::string_view argument, std::string_view text) {
  for (const Policy policy : std::array{Policy::tune, Policy::lookup, Policy::frozen, Policy::background})
    if (name(policy) == text) return policy;
  throw InvalidArgument(argument, fmt::format("\"{}\"", text), "tune, lookup, frozen or background");
}

std::optional<Policy> policy_of_environment() {
  const std::optional<std::string> text = environment_variable("CE_POLICY");
  if (!text) return std::nullopt;
  return parse_policy("CE_POLICY", *text);
}

}  // namespace ce
