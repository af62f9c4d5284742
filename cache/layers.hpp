#pragma once
/// \file
/// Databases and bundles below the user's database: read where that knows nothing, and never written.

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

/// The nearest first: the file in CE_SITE_DB, if it is set, then the winners that ship with this program. In the place of
/// the latter CE_SYSTEM_DB names a file, or is "none". A file is a database or a bundle; where CE_TRUST is set, a
/// bundle that is signed by someone whom that names.
[[nodiscard]] std::vector<Layer> open_lower_layers();

/// Whether one of these variables is set: the winners that ship with this program are pinned by no one.
[[nodiscard]] bool names_layers();

/// The winners that ship with this program, in the lines of an export.
[[nodiscard]] std::string shipped_winners();

}  // namespace ce::cache
