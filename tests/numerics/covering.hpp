#pragma once
/// \file
/// Problems and configs that together cover what the templates can be.

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache.hpp"
#include "generator/problem.hpp"
#include "generator/variant.hpp"
#include "runtime/device.hpp"
#include "tuner/verify/trial.hpp"

namespace ce::test {

/// A kernel to check.
struct Case {
  generator::Problem problem;
  generator::Config config;
};

/// What an array of cases covers, beside the values of configs.
enum class Covers {
  options,         ///< every option, and every dtype
  options_dtypes,  ///< every option with every dtype: over twice as many
};

/// What a case shows of the templates: the words of its problem (options, reduction, alignment), with the dtype too, and
/// the values of its config.
[[nodiscard]] std::set<std::string> words_of(const Case& one, Covers covers);

/// The variants that reduce or write rows: all but the ceilings.
[[nodiscard]] std::vector<std::string_view> variants_of_rows();

/// Cases of a variant, drawn for each operation that it serves, or with each dtype in turn, until that has
/// shown nothing new for a while; only those that show something new are kept. But for odds that no seed will meet,
/// they cover what they are to.
[[nodiscard]] std::vector<Case> covering_cases(std::string_view variant, const generator::Limits& limits,
                                               std::uint64_t seed, Covers covers);

/// Every combination of the options of cross entropy with class indices or probabilities, each with the next
/// variant, dtype and width in turn: 4608 cases, of which every `parts`-th is in a part.
/// \param part  from 0
[[nodiscard]] std::vector<Case> product_of_options(const generator::Limits& limits, std::uint64_t seed,
                                                   int part, int parts);

/// What kernels of a problem run on.
using TrialsOf = std::function<std::vector<generator::Trial>(const generator::Problem&, std::uint64_t seed)>;

/// Runs the kernels against the f64 reference. Every failure names problem, config, seed and what is wrong.
void expect_right(runtime::Device& device, cache::Cache& cache, const std::vector<Case>& cases,
                  std::uint64_t seed, const TrialsOf& trials = generator::verification_trials);

/// `count` configs of the problem's space, of every variant in turn.
[[nodiscard]] std::vector<generator::Config> some_configs(const generator::Problem& problem,
                                                          const generator::Limits& limits, std::size_t count,
                                                          std::uint64_t seed);

}  // namespace ce::test
