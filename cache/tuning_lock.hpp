#pragma once
/// \file
/// The right to tune a key.

#include <filesystem>
#include <string>

#include "cache/file_lock.hpp"

namespace ce::cache {

/// The right to tune a key. Others wait for its holder, or go on without a winner.
using TuningLock = FileLock;

/// The path of a key's tuning lock. \param id  Key::id()
[[nodiscard]] std::filesystem::path tuning_lock_file(const std::filesystem::path& database,
                                                     const std::string& id);

/// Removes tuning locks that killed processes of this user left behind.
void remove_abandoned_tuning_locks(const std::filesystem::path& database) noexcept;

}  // namespace ce::cache
