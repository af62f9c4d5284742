#pragma once
/// \file
/// The memory's ceilings, as far as the database has them.

#include <map>
#include <string>

#include "cache/cache.hpp"
#include "generator/problem.hpp"

namespace ce::cli {

/// 1e9 bytes a second by kind of traffic: the winner of the fastest problem that does nothing but move memory. A
/// kind that was never measured with the templates of this version is missing.
using Ceilings = std::map<generator::Operation, double>;

/// By the text of a key's device.
[[nodiscard]] std::map<std::string, Ceilings> ceilings_on_record(const cache::Cache& cache);

}  // namespace ce::cli
