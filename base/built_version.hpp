#pragma once
/// \file
/// The version of `ce`, for the rooms below ce/version.hpp.

#include <string_view>

namespace ce {

/// The version that this was built as: "major.minor.patch".
[[nodiscard]] std::string_view built_version() noexcept;

}  // namespace ce
