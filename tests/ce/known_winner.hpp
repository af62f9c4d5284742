#pragma once
/// \file
/// A database that knows a winner, without a device that could measure one.

#include "cache/cache.hpp"
#include "generator/config.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"

namespace ce::test {

/// Makes the config the problem's winner on that device, which has verified it. Its binaries begin like cubins and hold
/// no code: good for a driver that runs none.
void know_winner(cache::Cache& cache, const runtime::Device& device, const generator::Problem& problem,
                 const generator::Config& config);

}  // namespace ce::test
