#pragma once
/// \file
/// Databases and bundles below the user's database. They are read if that has no answer, and never written.

#include <filesystem>
#include <string>
#include <vector>

#include "cache/cache.hpp"

namespace ce::cache {

struct Layer {
  std::string name;            ///< "site" or "system"
  std::filesystem::path path;  ///< empty for the built-in layer
  std::string problem;         ///< why it cannot be read and is left out; empty if it can
  Cache cache;
};

/// The layers, nearest first: the file in CE_SITE_DB, if it is set, then the winners that ship with this program.
/// CE_SYSTEM_DB replaces the latter by a file, or removes them if it is "none". A file is a database or a bundle; if
/// CE_TRUST is set, it must be a bundle signed by a signer that CE_TRUST names.
[[nodiscard]] std::vector<Layer> open_lower_layers();

/// Whether one of these variables is set: the winners that ship with this program contain no pins.
[[nodiscard]] bool names_layers();

/// The winners that ship with this program, as lines of an export.
[[nodiscard]] std::string shipped_winners();

}  // namespace ce::cache
