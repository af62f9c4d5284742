#pragma once
/// \file
/// Models of devices from the texts of keys.

#include <optional>
#include <string_view>

#include "runtime/device.hpp"

namespace ce::runtime {

/// The model that Model::key() wrote, but for its memory; nothing for any other text.
[[nodiscard]] std::optional<Model> parse_model_key(std::string_view text);

}  // namespace ce::runtime
