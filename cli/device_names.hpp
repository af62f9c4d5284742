#pragma once
/// \file
/// Selects devices by parts of their names.

#include <string>
#include <vector>

#include "cache/cache.hpp"

namespace ce::cli {

/// The keys on devices whose name contains one of these texts, ignoring case; all keys if there is no text.
/// \throws NotFound for a text that no device's name contains
[[nodiscard]] std::vector<cache::Key> keys_on(const cache::Cache& cache,
                                              const std::vector<std::string>& names);

}  // namespace ce::cli
