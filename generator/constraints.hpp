#pragma once
/// \file
/// Why a config of a variant cannot work for a problem, found without compiling anything, and the shared memory that
/// such constraints ask about.

#include <cstdint>
#include <optional>
#include <string>

#include "generator/variant.hpp"

namespace ce::generator {

/// Nothing where the config can work.
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

/// Shared memory of a multiprocessor that each block takes beside its own.
inline constexpr int shared_bytes_of_the_system = 1024;

/// Dynamic shared memory of a block of the variant; what does not fit an int fits no device either.
[[nodiscard]] int packed_bytes(const Config& config, const Problem& problem);
[[nodiscard]] int transpose_bytes(const Config& config, const Problem& problem);
[[nodiscard]] int cluster_bytes(const Config& config, const Problem& problem);
[[nodiscard]] int pipeline_bytes(const Config& config, const Problem& problem);
[[nodiscard]] int pipeline_decoupled_bytes(const Config& config, const Problem& problem);
[[nodiscard]] int persistent_bytes(const Config& config, const Problem& problem);
[[nodiscard]] int persistent_reduce_bytes(const Config& config, const Problem& problem);

/// Rows beyond which `split` would not pay.
inline constexpr std::int64_t most_split_rows = 256;

/// Vectors of a row, counted from a 128-byte line, at most (row.cuh).
[[nodiscard]] std::int64_t vectors_of(const Config& config, const Problem& problem);

/// Bytes of the SoftmaxStats of a row (stats.cuh).
[[nodiscard]] int stats_bytes(const Problem& problem);

}  // namespace ce::generator
