#pragma once
/// \file
/// Finds measurements of similar problems.

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "cache/cache.hpp"
#include "generator/config.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"

namespace ce::tuner {

/// A similar problem on the same device, whose kernels move memory alike, with its measurements.
struct Neighbour {
  generator::Problem problem;  ///< has the rows that were timed
  double distance = 0;         ///< see distance_between()
  /// Each config with the natural logarithm of its time over that of the fastest.
  std::vector<std::pair<generator::Config, double>> losses;
};

/// More distant problems would hardly count.
inline constexpr std::size_t most_neighbours = 13;

/// Distance in octaves of columns and rows between two problems, plus more if operation, dtype or alignment differ.
/// Nothing if times for one say nothing about the other: another element size, another number of matrices to read or
/// write, another order of reading.
[[nodiscard]] std::optional<double> distance_between(const generator::Problem& a,
                                                     const generator::Problem& b);

/// The known neighbours, nearest first.
[[nodiscard]] std::vector<Neighbour> neighbours(const runtime::Device& device, const cache::Cache& cache,
                                                const generator::Problem& problem,
                                                std::size_t most = most_neighbours);

}  // namespace ce::tuner
