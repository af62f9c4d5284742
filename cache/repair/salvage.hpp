#pragma once
/// \file
/// Copies the readable contents of a damaged database.

#include <cstdint>
#include <filesystem>

#include "cache/store.hpp"

namespace ce::cache {

/// Progress: the last row ids that were copied.
struct Salvaged {
  std::int64_t last_measurement = 0, last_binary = 0;
};

/// Copies each readable measurement and binary that matches its identity or digest; binaries only from a file that no
/// other user than root can have written. Reads tables row by row and continues behind unreadable rows; never changes
/// the damaged file.
/// \param before  the result of an earlier call for the same file: only later rows are copied
/// \throws SQLite::Exception if `into` refuses
Salvaged salvage(const std::filesystem::path& damaged, Store& into, const Salvaged& before = {});

}  // namespace ce::cache
