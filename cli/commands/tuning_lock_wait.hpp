#pragma once
/// \file
/// Waits for other processes that tune the same problem.

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>

#include "cache/cache.hpp"

namespace ce::cli {

/// Waits until no other process tunes the key.
/// \param waiting  called several times a second meanwhile
/// \returns nothing if the deadline comes first
/// \throws Error(interrupted) when asked to stop
[[nodiscard]] std::optional<cache::TuningLock> wait_for_tuning_lock(
    const cache::Cache& cache, const cache::Key& key, const std::stop_token& stop,
    std::chrono::steady_clock::time_point deadline, const std::function<void()>& waiting);

}  // namespace ce::cli
