#pragma once
/// \file
/// Rejects configs of a variant that cannot work for a problem, without compiling anything, and computes their shared
/// memory.

#include <cstdint>
#include <optional>
#include <string>

#include "generator/variant.hpp"

namespace ce::generator {

/// The reason why a config is rejected; empty if it can work.
using Rejection = std::optional<std::string>;

[[nodiscard]] Rejection rejects_warp(const Config& config, const Problem& problem, const Limits& limits);
[[nodiscard]] Rejection rejects_packed(const Config& config, const Problem& problem, const Limits& limits);
[[nodiscard]] Rejection rejects_transpose(const Config& config, const Problem& problem, const Limits& limits);
[[nodiscard]] Rejection rejects_block(const Config& config, const Problem& problem, const Limits& limits);
[[nodiscard]] Rejection rejects_two_pass(const Config& config, const Problem& problem, const Limits& limits);
[[nodiscard]] Rejection rejects_cluster(const Config& config, const Problem& problem, const Limits& limits);
[[nodiscard]] Rejection rejects_pipeline(const Config& config, const Problem& problem, const Limits& limits);
[[nodiscard]] Rejection rejects_pipeline_decoupled(const Config& config, const Problem& problem,
                                                   const Limits& limits);
[[nodiscard]] Rejection rejects_persistent(const Config& config, const Problem& problem,
                                           const Limits& limits);
[[nodiscard]] Rejection rejects_persistent_reduce(const Config& config, const Problem& problem,
                                                  const Limits& limits);
[[nodiscard]] Rejection rejects_split(const Config& config, const Problem& problem, const Limits& limits);
[[nodiscard]] Rejection rejects_elementwise(const Config& config, const Problem& problem,
                                            const Limits& limits);
[[nodiscard]] Rejection rejects_strided(const Config& config, const Problem& problem, const Limits& limits);
[[nodiscard]] Rejection rejects_merge(const Config& config, const Problem& problem, const Limits& limits);
[[nodiscard]] Rejection rejects_bandwidth(const Config& config, const Problem& problem, const Limits& limits);

/// Shared memory of a multiprocessor that the system reserves for each block, besides the block's own.
inline constexpr int shared_bytes_of_the_system = 1024;

/// Dynamic shared memory of a block of the variant; sizes that do not fit an int are clamped, since they fit no device.
[[nodiscard]] int packed_bytes(const Config& config, const Problem& problem);
[[nodiscard]] int transpose_bytes(const Config& config, const Problem& problem);
[[nodiscard]] int cluster_bytes(const Config& config, const Problem& problem);
[[nodiscard]] int pipeline_bytes(const Config& config, const Problem& problem);
[[nodiscard]] int pipeline_decoupled_bytes(const Config& config, const Problem& problem);
[[nodiscard]] int persistent_bytes(const Config& config, const Problem& problem);
[[nodiscard]] int persistent_reduce_bytes(const Config& config, const Problem& problem);

/// `split` does not pay for more rows than this.
inline constexpr std::int64_t most_split_rows = 256;

/// Vectors of a row, at most, counted from a 128-byte line (row.cuh).
[[nodiscard]] std::int64_t vectors_of(const Config& config, const Problem& problem);

/// Bytes of the SoftmaxStats for a row (stats.cuh).
[[nodiscard]] int stats_bytes(const Problem& problem);

}  // namespace ce::generator
