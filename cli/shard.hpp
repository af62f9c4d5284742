#pragma once
/// \file
/// Which part of a list of problems one of many processes does.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ce::cli {

/// One of `count` shards, counted from 0. Every problem is in exactly one.
struct Shard {
  int index = 0;
  int count = 1;

  /// Whether a problem is in it. That hangs on the text alone, so that a list may be changed, cut or put into another
  /// order, and on no device, so that different machines share a list in the same way.
  /// \param problem  Key::problem: problems with one answer are in one shard
  [[nodiscard]] bool has(std::string_view problem) const;
  /// "3/8".
  [[nodiscard]] std::string text() const;

  friend bool operator==(const Shard&, const Shard&) = default;
};

/// The value of an environment variable; nothing where it is unset or empty.
using Variables = std::function<std::optional<std::string>(const char*)>;

/// What --shard says: "I/N"; or "auto" or "auto/N", for which the environment has the index: SLURM_ARRAY_TASK_ID and
/// SLURM_PROCID, JOB_COMPLETION_INDEX, or RANK; and, without N, the count: SLURM_ARRAY_TASK_COUNT and SLURM_NTASKS,
/// CE_SHARDS, or WORLD_SIZE.
/// \throws InvalidArgument naming --shard or a variable: its value is no number or out of range, it is missing, or
/// another contradicts it
[[nodiscard]] Shard parse_shard(const std::string& text, const Variables& variables);

}  // namespace ce::cli
