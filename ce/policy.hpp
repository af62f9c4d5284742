#pragma once
/// \file
/// Parses a Policy. Not installed.

#include <optional>
#include <string_view>

#include "ce/context.hpp"

namespace ce {

/// "tune", "lookup", "frozen" or "background". \throws InvalidArgument naming the argument
[[nodiscard]] Policy parse_policy(std::string_view argument, std::string_view text);

/// The policy in CE_POLICY; nothing if it is unset or empty. \throws InvalidArgument
[[nodiscard]] std::optional<Policy> policy_of_environment();

}  // namespace ce
