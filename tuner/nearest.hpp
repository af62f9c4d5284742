#pragma once
/// \file
/// What is known of problems like this one?

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "cache/cache.hpp"
#include "generator/config.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"

namespace ce::tuner {

/// Another problem on the same device whose kernels move memory alike, with what was measured of it.
struct Neighbour {
  generator::Problem problem;  ///< with the rows that were timed
  double distance = 0;         ///< see distance_between()
  /// Configs with the natural logarithm of their time over that of the fastest.
  std::vector<std::pair<generator::Config, double>> losses;
};

/// Farther ones would hardly count.
inline constexpr std::size_t most_neighbours = 13;

/// Octaves of columns and of rows between two problems, more where operation, dtype or alignment differ. Nothing
/// where what is fast for the one says nothing about the other: elements of another size, matrices more or less
/// to read or write, another order of reading.
[[nodiscard]] std::optional<double> distance_between(const generator::Problem& a,
                                                     const generator::Problem& b);

/// The nearest first.
[[nodiscard]] std::vector<Neighbour> neighbours(const runtime::Device& device, const cache::Cache& cache,
                                                const generator::Problem& problem,
                                                std::size_t most = most_neighbours);

}  // namespace ce::tuner
