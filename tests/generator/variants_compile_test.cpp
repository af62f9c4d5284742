// Every Variant through NVRTC for every architecture, without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "ce/base/error.hpp"
#include "generator/source.hpp"
#include "generator/variant.hpp"
#include "runtime/cuda/nvrtc.hpp"

namespace ce::generator {
namespace {

/// Every option at once, as far as they go together.
Problem with_all_options(Problem problem) {
  problem.reduction = Reduction::mean;
  problem.upstream = Upstream::rows;
  problem.gradient = problem.smoothing = problem.weights = problem.z_loss = problem.softcap = problem.scale =
      true;
  if (problem.operation == Operation::cross_entropy) {
    problem.z_loss_out = problem.lse_out = problem.argmax_out = true;
    problem.hit_out = !problem.probabilities;
  }
  return problem;
}

std::vector<Problem> problems_of(const Variant& variant) {
  if (variant.serves({.operation = Operation::copy}))
    return {{.operation = Operation::copy, .rows = 64, .columns = 4096},
            {.operation = Operation::read, .rows = 64, .columns = 4096},
            {.operation = Operation::add, .rows = 64, .columns = 4096}};
  const Problem plain{.dtype = DType::bf16,
                      .strided = variant.serves({.strided = true}),
                      .rows = 64,
                      .columns = variant.name == "warp"    ? 512
                                 : variant.name == "block" ? 4096
                                                           : 32768};
  std::vector<Problem> problems;
  const auto add = [&](Operation operation, DType dtype) -> Problem& {
    problems.push_back(plain);
    problems.back().operation = operation;
    problems.back().dtype = dtype;
    return problems.back();
  };
  Problem& backward = add(Operation::cross_entropy_backward, DType::f16);
  backward.gradient = backward.in_place = true;
  if (variant.name == "direct") return problems;
  backward = with_all_options(backward);  // weights of all classes must be added up
  add(Operation::softmax, DType::f16);
  Problem& log_softmax = add(Operation::log_softmax, DType::bf16);
  if (!plain.strided) log_softmax.alignment = Alignment::shifted;
  log_softmax.columns += 3;
  add(Operation::softmax_backward, DType::bf16);
  add(Operation::log_softmax_backward, DType::f32).batched = true;
  Problem& usual = add(Operation::cross_entropy, DType::bf16);
  usual.reduction = Reduction::mean;
  usual.gradient = usual.in_place = true;
  if (variant.name != "pipeline") add(Operation::cross_entropy, DType::f32).target_dtype = DType::i32;
  Problem& indices = add(Operation::cross_entropy, DType::bf16);
  indices = with_all_options(indices);
  Problem& probabilities = add(Operation::cross_entropy, DType::f32);
  probabilities.probabilities = true;
  probabilities = with_all_options(probabilities);
  return problems;
}

class CompileForArchitecture : public testing::TestWithParam<int> {};

TEST_P(CompileForArchitecture, EveryVariant) {
  const runtime::cuda::Nvrtc* nvrtc = runtime::cuda::Nvrtc::shared().nvrtc.get();
  if (nvrtc == nullptr) {
    if (std::getenv("CE_REQUIRE_NVRTC") != nullptr) FAIL() << "no NVRTC";
    GTEST_SKIP() << "no NVRTC on this machine";
  }
  const std::vector<int> supported = nvrtc->architectures_to_test();
  if (std::find(supported.begin(), supported.end(), GetParam()) == supported.end())
    GTEST_SKIP() << "NVRTC " << nvrtc->version() << " does not know sm_" << GetParam();
  for (const Variant& variant : variants())
    for (const Problem& problem : problems_of(variant)) {
      std::vector<Config> configs;
      for (const Config& config :
           space(problem, {.capability = GetParam(),
                          .shared_bytes_per_block = GetParam() < 90 ? 48 * 1024 : 227 * 1024}))
        if (config.variant == variant.name) configs.push_back(config);
      const bool needs_clusters = variant.name == "cluster" || variant.name == "pipeline";
      ASSERT_EQ(configs.empty(), needs_clusters && GetParam() < 90) << variant.name << " " << title(problem);
      if (configs.empty()) continue;
      // The middle of the space everywhere, one of its ends too where most will run it.
      std::vector<Config> chosen{configs[configs.size() / 2]};
      if (GetParam() == 90) chosen.push_back(configs.back());
      for (const Config& config : chosen) {
        const Program program = generate(problem, config);
        for (const Source& source : program.sources) {
          SCOPED_TRACE(source.name);
          try {
            const auto binary = nvrtc->compile(
                {.name = source.name, .text = source.text, .headers = source.headers}, GetParam());
            EXPECT_GT(binary.image.size(), 0u);
            EXPECT_EQ(binary.log, "") << "warnings";
          } catch (const CompileError& error) {
            ADD_FAILURE() << error.what();
          }
        }
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Nvrtc, CompileForArchitecture, testing::Values(75, 80, 86, 89, 90, 100, 120));

}  // namespace
}  // namespace ce::generator
