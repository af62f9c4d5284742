#pragma once
/// \file
/// Made-up measurements for reports.

#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "generator/problem.hpp"
#include "generator/source.hpp"
#include "generator/variant.hpp"
#include "tuner/decide.hpp"
#include "tuner/maker.hpp"

namespace ce::cli::test {

inline const std::string device = "Some GPU|cc=90|sm=132";

inline generator::Problem softmax_of(std::int64_t columns, DType dtype = DType::bf16) {
  return {.operation = generator::Operation::softmax, .dtype = dtype, .rows = 8192, .columns = columns};
}

/// The configs of the problem that differ from the first in nothing but the modifier of loads.
inline std::vector<std::string> configs_of(const generator::Problem& problem) {
  std::vector<std::string> configs;
  const std::vector<generator::Config> space = generator::space(problem, {.capability = 90});
  for (generator::Config config : space) {
    config.load = space.front().load;
    if (config != space.front()) continue;
    configs.clear();
    for (int load = 0; load < 2; ++load) {
      config.load = load;
      configs.push_back(generator::to_text(config));
    }
  }
  return configs;
}

inline cache::Measurement final_of(const generator::Problem& problem, const std::string& device,
                                   const std::string& config, double us) {
  return {.key = {generator::key_text(problem), device},
          .config = config,
          .template_digest = generator::template_digest(problem.operation, tuner::variant_of(config)),
          .compile_key = "of " + config,
          .stage = cache::stage_of_finals,
          .rows = problem.rows,
          .bytes = generator::traffic(problem).total(),
          .samples_us = std::vector<float>(15, static_cast<float>(us)),
          .median_us = us,
          .spread = 0.001,
          .registers = 40,
          .environment = {{"driver", "580.1"}, {"nvrtc", "13.0"}, {"uuid", "GPU-1"}, {"temperature_c", "41"}},
          .created_at = "2030-01-02T03:04:05.000Z"};
}

}  // namespace ce::cli::test
