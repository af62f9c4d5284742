#pragma once
/// \file
/// What won for problems like this one?

#include <cstddef>
#include <vector>

#include "cache/cache.hpp"
#include "generator/config.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"

namespace ce::tuner {

/// Configs that won for other problems of the same operation, dtype and alignment on this device, the nearest
/// problem's first and each once. They need not fit this one.
[[nodiscard]] std::vector<generator::Config> near_winners(const runtime::Device& device,
                                                          const cache::Cache& cache,
                                                          const generator::Problem& problem,
                                                          std::size_t most);

}  // namespace ce::tuner
