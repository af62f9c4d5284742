#pragma once
/// \file
/// The texts of a Policy. Not installed.

#include <optional>
#include <string_view>

#include "ce/context.hpp"

namespace ce {

/// "tune", "lookup", "frozen" or "background". \throws InvalidArgument naming the argument
[[nodiscard]] Policy parse_policy(std::string_view argument, std::string_view text);

/// What CE_POLICY asks for; nothing where it is unset or empty. \throws InvalidArgument
[[nodiscard]] std::optional<Policy> policy_of_environment();

}  // namespace ce
