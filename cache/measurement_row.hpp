#pragma once
/// \file
/// One measurement in the columns of a query.

#include "cache/cache.hpp"
#include "cache/query.hpp"

namespace ce::cache {

/// Of the first columns of a row: problem, device, config, template_digest, compile_key, outcome, reason, stage,
/// rows, bytes, samples_us, median_us, spread, registers, local_bytes, evidence, created_at.
/// \throws std::exception where the evidence is no JSON
[[nodiscard]] Measurement read_measurement(const Query& row);

/// The same with its identity in the column after those.
/// \throws SQLite::Exception with SQLITE_CORRUPT where it is not what was written
[[nodiscard]] Measurement read_whole_measurement(const Query& row);

}  // namespace ce::cache
