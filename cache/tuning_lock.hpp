#pragma once
/// \file
/// The right to tune a key.

#include <filesystem>
#include <string>

#include "cache/file_lock.hpp"

namespace ce::cache {

/// Its holder tunes the key; all others wait, or do without.
using TuningLock = FileLock;

/// The file of the tuning lock of a key. \param id  Key::id()
[[nodiscard]] std::filesystem::path tuning_lock_file(const std::filesystem::path& database,
                                                     const std::string& id);

/// Removes what processes of this user left behind that were killed while they held tuning locks.
void remove_abandoned_tuning_locks(const std::filesystem::path& database) noexcept;

}  // namespace ce::cache
