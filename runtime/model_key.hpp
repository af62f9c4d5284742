#pragma once
/// \file
/// Parses the device's part of keys.

#include <optional>
#include <string_view>

#include "runtime/device.hpp"

namespace ce::runtime {

/// The model that Model::key() wrote, without its memory size; nothing for any other text.
[[nodiscard]] std::optional<Model> parse_model_key(std::string_view text);

}  // namespace ce::runtime
