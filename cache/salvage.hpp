#pragma once
/// \file
/// What can still be read of a damaged database.

#include <cstdint>
#include <filesystem>

#include "cache/store.hpp"

namespace ce::cache {

struct Salvaged {
  std::int64_t measurements = 0, binaries = 0;
};

/// Copies each measurement and each binary that can be read and is what was written. Reads tables row by row
/// and goes on behind what cannot be read; never changes the damaged file.
/// \throws SQLite::Exception where `into` refuses
[[nodiscard]] Salvaged salvage(const std::filesystem::path& damaged, Store& into);

}  // namespace ce::cache
