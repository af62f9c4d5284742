#pragma once
/// \file
/// A shared cache without a server: two commands of the user's, asked before a search and told after it.

#include <cstddef>
#include <optional>
#include <string>

#include "cache/cache.hpp"
#include "generator/problem.hpp"

namespace ce::tuner {

/// A document that is longer is none of ours.
inline constexpr std::size_t most_remote_bytes = std::size_t{1} << 20;
/// CE_REMOTE_SECONDS, where it is not set.
inline constexpr int usual_remote_seconds = 5;

/// What a document is kept under: the key's name and 12 digits of the digest of today's templates that can serve the
/// problem, so that programs of several versions do not take turns in replacing it. Letters, digits and a dash.
[[nodiscard]] std::string remote_name(const cache::Key& key, const generator::Problem& problem);

/// Asks CE_REMOTE_GET for the final of another machine, and adds it to the database, as an import would: it is verified
/// before it serves. Never fails; what went wrong is said once.
/// \returns whether the database knows more than before
bool ask_remote(cache::Cache& cache, const cache::Key& key, const generator::Problem& problem);

/// Gives CE_REMOTE_PUT the final that decides, of a search that came to its end. Never fails.
void tell_remote(const cache::Cache& cache, const cache::Key& key, const generator::Problem& problem);

}  // namespace ce::tuner
