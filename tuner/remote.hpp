#pragma once
/// \file
/// A shared cache without a server: two commands of the user, one called before a search and one after it.

#include <cstddef>
#include <optional>
#include <string>

#include "cache/cache.hpp"
#include "generator/problem.hpp"

namespace ce::tuner {

/// Longer documents are rejected.
inline constexpr std::size_t most_remote_bytes = std::size_t{1} << 20;
/// Default of CE_REMOTE_SECONDS.
inline constexpr int usual_remote_seconds = 5;

/// The document's name: the key's name and 12 digits of the digest of the current templates that can serve the problem,
/// so that programs of different versions do not replace each other's documents. Letters, digits and a dash.
[[nodiscard]] std::string remote_name(const cache::Key& key, const generator::Problem& problem);

/// Calls CE_REMOTE_GET for the final of another machine, and adds it to the database, like an import: it is verified
/// before it serves. Never fails; errors are logged once.
/// \returns whether the database has new measurements
bool ask_remote(cache::Cache& cache, const cache::Key& key, const generator::Problem& problem);

/// Passes the deciding final of a finished search to CE_REMOTE_PUT. Never fails.
void tell_remote(const cache::Cache& cache, const cache::Key& key, const generator::Problem& problem);

}  // namespace ce::tuner
