#pragma once
/// \file
/// The memory's ceilings in the database.

#include <map>
#include <string>

#include "cache/cache.hpp"
#include "generator/problem.hpp"

namespace ce::cli {

/// Throughput in 1e9 bytes a second by kind of traffic: that of the fastest ceiling problem. A kind that was never
/// measured with this version's templates is missing.
using Ceilings = std::map<generator::Operation, double>;

/// By the text of a key's device.
[[nodiscard]] std::map<std::string, Ceilings> ceilings_on_record(const cache::Cache& cache);

}  // namespace ce::cli
