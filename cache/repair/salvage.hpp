#pragma once
/// \file
/// What can still be read of a damaged database.

#include <cstdint>
#include <filesystem>

#include "cache/store.hpp"

namespace ce::cache {

/// How far that has come: the numbers of the last rows.
struct Salvaged {
  std::int64_t last_measurement = 0, last_binary = 0;
};

/// Copies each measurement and each binary that can be read and is what was written; binaries only of a file that only
/// this user and root can have written. Reads tables row by row
/// and goes on behind what cannot be read; never changes the damaged file.
/// \param before  what this returned of the same file before: only the rows behind are copied
/// \throws SQLite::Exception where `into` refuses
Salvaged salvage(const std::filesystem::path& damaged, Store& into, const Salvaged& before = {});

}  // namespace ce::cache
