#pragma once
/// \file
/// Divides a list of problems among many processes.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ce::cli {

/// One of `count` shards, counted from 0. Every problem is in exactly one.
struct Shard {
  int index = 0;
  int count = 1;

  /// Whether a problem is in this shard. That depends on its text only, so that a list may be changed, cut or
  /// reordered, and not on a device, so that different machines divide a list equally.
  /// \param problem  Key::problem: problems with the same answer are in one shard
  [[nodiscard]] bool has(std::string_view problem) const;
  /// "3/8".
  [[nodiscard]] std::string text() const;

  friend bool operator==(const Shard&, const Shard&) = default;
};

/// The value of an environment variable; nothing if it is unset or empty.
using Variables = std::function<std::optional<std::string>(const char*)>;

/// The shard of --shard: "I/N"; or "auto" or "auto/N", which takes the index from the environment: SLURM_ARRAY_TASK_ID
/// and SLURM_PROCID, JOB_COMPLETION_INDEX, or RANK; and, without N, the count: SLURM_ARRAY_TASK_COUNT and SLURM_NTASKS,
/// CE_SHARDS, or WORLD_SIZE.
/// \throws InvalidArgument naming --shard or a variable that is not a number, out of range, missing, or contradicts
/// another
[[nodiscard]] Shard parse_shard(const std::string& text, const Variables& variables);

}  // namespace ce::cli
