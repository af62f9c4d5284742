#pragma once
/// \file
/// What is known of problems like this one?

#include <cstddef>
#include <utility>
#include <vector>

#include "cache/cache.hpp"
#include "generator/config.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"

namespace ce::tuner {

/// Another problem of the same operation, dtype and layout on the same device, with what was measured of it.
struct Neighbour {
  generator::Problem problem;
  double distance = 0;  ///< octaves of columns and of rows between the two
  /// Configs with the natural logarithm of their time over that of the fastest.
  std::vector<std::pair<generator::Config, double>> losses;
};

/// The nearest first.
[[nodiscard]] std::vector<Neighbour> neighbours(const runtime::Device& device, const cache::Cache& cache,
                                                const generator::Problem& problem, std::size_t most = 3);

}  // namespace ce::tuner
