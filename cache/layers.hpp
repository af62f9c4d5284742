#pragma once
/// \file
/// Databases below the user's: read where that knows nothing, and never written.

#include <filesystem>
#include <string>
#include <vector>

#include "cache/cache.hpp"

namespace ce::cache {

struct Layer {
  std::string name;            ///< "site" or "system"
  std::filesystem::path path;  ///< empty for what is built in
  std::string problem;         ///< why it cannot be read and is left out; empty where it can
  Cache cache;
};

/// The nearest first: the database in CE_SITE_DB, if it is set, then the winners that ship with this program. In the
/// place of the latter CE_SYSTEM_DB names a database, or is "none".
[[nodiscard]] std::vector<Layer> open_lower_layers();

/// The winners that ship with this program, in the lines of an export.
[[nodiscard]] std::string shipped_winners();

}  // namespace ce::cache
