#pragma once
/// \file
/// Devices by parts of their names.

#include <string>
#include <vector>

#include "cache/cache.hpp"

namespace ce::cli {

/// Of all keys those on a device whose name contains one of these, in any case; all, where no name is given.
/// \throws NotFound for a name that no device has
[[nodiscard]] std::vector<cache::Key> keys_on(const cache::Cache& cache,
                                              const std::vector<std::string>& names);

}  // namespace ce::cli
