#include "covering.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <map>

#include "ce/base/error.hpp"
#include "tuner/build_ahead.hpp"
#include "tuner/verify.hpp"

namespace ce::test {

using generator::Alignment;
using generator::Config;
using generator::Operation;
using generator::Problem;

std::vector<Problem> covering_problems(const std::vector<std::int64_t>& widths) {
  std::vector<Problem> kinds{{.operation = Operation::softmax},
                             {.operation = Operation::softmax, .in_place = true}};
  for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum})
    for (const bool gradient : {false, true}) {
      const Problem kind{.operation = Operation::cross_entropy, .reduction = reduction, .gradient = gradient};
      kinds.push_back(kind);
      if (!gradient) continue;
      kinds.push_back(kind);
      kinds.back().in_place = true;
      kinds.back().target_dtype = DType::i32;
    }
  std::vector<Problem> problems;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const Alignment alignment : {Alignment::vector, Alignment::shifted, Alignment::element})
      for (Problem problem : kinds) {
        if (alignment == Alignment::element && problem.in_place)
          continue;  // the same memory is never misaligned
        problem.dtype = dtype;
        problem.alignment = alignment;
        problem.rows = 64;
        problem.columns = widths[problems.size() % widths.size()];
        if (problem.operation == Operation::cross_entropy && problems.size() % 2 == 1)
          problem.loss_dtype = dtype;
        problems.push_back(problem);
      }
  return problems;
}

std::vector<Config> covering_configs(const Problem& problem, const generator::Limits& limits,
                                     std::size_t count, std::uint64_t turn) {
  std::map<std::string, std::vector<Config>> by_variant;
  for (Config& config : generator::space(problem, limits))
    by_variant[config.variant].push_back(std::move(config));
  std::vector<Config> chosen;
  for (std::size_t i = 0; chosen.size() < count && i < count; ++i)
    for (const auto& [variant, configs] : by_variant)
      // Steps of a number that shares no factor with the sizes of the axes visit all of their values.
      chosen.push_back(configs[(turn * 7 + i * 31) % configs.size()]);
  return chosen;
}

std::vector<std::string> expect_right(runtime::Device& device, cache::Cache& cache, const Problem& problem,
                                      const std::vector<Config>& configs, std::uint64_t seed) {
  std::vector<std::string> met;
  tuner::Verifier verifier(device, problem, seed);
  tuner::BuildAhead ahead(device, cache, problem, configs);
  for (std::size_t i = 0; i < configs.size(); ++i) {
    SCOPED_TRACE(fmt::format("{} with {}, seed {}", generator::title(problem), to_text(configs[i]), seed));
    try {
      const tuner::Kernel kernel = ahead.take(i).load(device);
      const auto wrong = verifier.mismatch(kernel);
      EXPECT_FALSE(wrong) << *wrong;
    } catch (const Error& error) {
      ADD_FAILURE() << name(error.kind()) << ": " << error.what();
    }
    met.push_back(configs[i].variant);
    for (const generator::Axis* axis : generator::variant(configs[i].variant).axes())
      met.push_back(fmt::format("{} {}={}", configs[i].variant, axis->name,
                                generator::value_text(*axis, configs[i].*axis->value)));
  }
  return met;
}

std::uint64_t test_seed() {
  const char* chosen = std::getenv("CE_TEST_SEED");
  const std::uint64_t seed =
      chosen != nullptr
          ? std::strtoull(chosen, nullptr, 10)
          : static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  fmt::print("CE_TEST_SEED={}\n", seed);
  return seed;
}

}  // namespace ce::test
