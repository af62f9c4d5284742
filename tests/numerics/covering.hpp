#pragma once
/// \file
/// Problems and configs that together cover what the templates can be.

#include <cstdint>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "generator/problem.hpp"
#include "generator/variant.hpp"
#include "runtime/device.hpp"

namespace ce::test {

/// One problem of every operation, option, dtype and alignment, each at some of the widths in turn.
[[nodiscard]] std::vector<generator::Problem> covering_problems(const std::vector<std::int64_t>& widths);

/// `count` configs of the problem's space, of every variant in turn, starting somewhere that differs from
/// problem to problem, so that over many problems all values of all axes are met.
[[nodiscard]] std::vector<generator::Config> covering_configs(const generator::Problem& problem,
                                                              const generator::Limits& limits,
                                                              std::size_t count, std::uint64_t turn);

/// Runs the configs against the f64 reference. Every failure names problem, config and what is wrong.
/// \returns "axis=value" of everything that ran
std::vector<std::string> expect_right(runtime::Device& device, cache::Cache& cache,
                                      const generator::Problem& problem,
                                      const std::vector<generator::Config>& configs, std::uint64_t seed);

/// Of the inputs: CE_TEST_SEED, else from the clock; printed.
[[nodiscard]] std::uint64_t test_seed();

}  // namespace ce::test
