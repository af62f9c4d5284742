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

std::vector<Problem> problems_of(const Variant& variant) {
  std::vector<Problem> problems;
  if (!variant.serves(Operation::softmax)) {
    problems.push_back({.operation = Operation::copy, .rows = 64, .columns = 4096});
    problems.push_back({.operation = Operation::read, .rows = 64, .columns = 4096});
    return problems;
  }
  if (variant.name == "cluster" || variant.name == "persistent") {
    problems.push_back({.dtype = DType::f16, .rows = 64, .columns = 32768});
    problems.push_back({.operation = Operation::cross_entropy,
                        .dtype = DType::bf16,
                        .gradient = true,
                        .in_place = true,
                        .alignment = Alignment::shifted,
                        .rows = 64,
                        .columns = 50257});
    return problems;
  }
  problems.push_back({.dtype = DType::f16, .rows = 64, .columns = 4096});
  problems.push_back({.dtype = DType::bf16, .alignment = Alignment::shifted, .rows = 64, .columns = 4099});
  problems.push_back({.dtype = DType::bf16, .alignment = Alignment::element, .rows = 64, .columns = 1000});
  problems.push_back({.operation = Operation::cross_entropy,
                      .dtype = DType::bf16,
                      .reduction = Reduction::mean,
                      .gradient = true,
                      .in_place = true,
                      .rows = 64,
                      .columns = 4096});
  problems.push_back({.operation = Operation::cross_entropy,
                      .target_dtype = DType::i32,
                      .reduction = Reduction::sum,
                      .rows = 64,
                      .columns = 4096});
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
      for (const Config& config : space(problem, {.capability = GetParam()}))
        if (config.variant == variant.name) configs.push_back(config);
      const bool needs_clusters = variant.name == "cluster" || variant.name == "persistent";
      ASSERT_EQ(configs.empty(), needs_clusters && GetParam() < 90) << variant.name << " " << title(problem);
      if (configs.empty()) continue;
      for (const Config& config : {configs.front(), configs[configs.size() / 2], configs.back()}) {
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
