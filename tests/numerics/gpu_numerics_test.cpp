// The numerics once more on a GPU, and what only a GPU can show: tensors beyond 2^31 elements, bits that
// repeat.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "ce/error.hpp"
#include "covering.hpp"
#include "runtime/cuda/device.hpp"
#include "tests/environment.hpp"
#include "tests/seed.hpp"
#include "tuner/build_ahead.hpp"
#include "tuner/trial_memory.hpp"
#include "tuner/verify/elements.hpp"

namespace ce::test {
namespace {

using generator::Operation;
using generator::Problem;

class GpuNumerics : public testing::Test {
 protected:
  void SetUp() override {
    if (runtime::cuda_device_count() > 0) {
      device = runtime::open_cuda_device(0);
      limits = tuner::limits_of(device->model());
    } else if (is_required("CE_REQUIRE_GPU")) {
      FAIL() << "no GPU";
    } else {
      GTEST_SKIP() << "no GPU on this machine";
    }
  }

  std::unique_ptr<runtime::Device> device;
  cache::Cache cache = cache::Cache::in_memory();
  generator::Limits limits;
};

class EveryVariant : public GpuNumerics, public testing::WithParamInterface<std::string_view> {};

TEST_P(EveryVariant, CoveringArray) {
  const std::uint64_t seed = test_seed();
  const std::vector<Case> cases = covering_cases(GetParam(), limits, seed, Covers::options_dtypes);
  fmt::print("{} cases\n", cases.size());
  expect_right(*device, cache, cases, seed);
}

/// Small enough for compute-sanitizer: scripts/sanitize runs this one.
TEST_P(EveryVariant, AFew) {
  const std::uint64_t seed = test_seed();
  std::vector<Case> cases = covering_cases(GetParam(), limits, seed, Covers::options_dtypes);
  cases.resize(std::min<std::size_t>(cases.size(), 8));
  expect_right(*device, cache, cases, seed);
}

INSTANTIATE_TEST_SUITE_P(GpuNumerics, EveryVariant, testing::ValuesIn(variants_of_rows()),
                         [](const auto& test) { return std::string(test.param); });

class ProductOfOptions : public GpuNumerics, public testing::WithParamInterface<int> {};

constexpr int product_parts = 8;

/// One part, which the seed draws, or with CE_FULL_PRODUCT in the environment all of them.
int tested_parts() { return std::getenv("CE_FULL_PRODUCT") != nullptr ? product_parts : 1; }

TEST_P(ProductOfOptions, IsRight) {
  const std::uint64_t seed = test_seed();
  const int part = tested_parts() == 1 ? static_cast<int>(seed % product_parts) : GetParam();
  const std::vector<Case> cases = product_of_options(limits, seed, part, product_parts);
  fmt::print("part {} of {}: {} cases\n", part, product_parts, cases.size());
  expect_right(*device, cache, cases, seed);
}
INSTANTIATE_TEST_SUITE_P(Parts, ProductOfOptions, testing::Range(0, tested_parts()));

TEST_F(GpuNumerics, WideRows) {
  const std::uint64_t seed = test_seed();
  std::vector<Case> cases;
  for (const std::int64_t columns : {50257, 128256, 262144})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const auto operation :
           {Operation::softmax, Operation::softmax_backward, Operation::cross_entropy}) {
        Problem problem{.operation = operation, .dtype = dtype, .rows = 64, .columns = columns};
        if (columns == 50257) problem.alignment = generator::Alignment::shifted;
        if (operation == Operation::cross_entropy) {
          problem.reduction = Reduction::mean;
          problem.gradient = problem.in_place = true;
        }
        for (const generator::Config& config : some_configs(problem, limits, 6, seed))
          cases.push_back({problem, config});
      }
  expect_right(*device, cache, cases, seed);
}

TEST_F(GpuNumerics, TheSameBitsEveryRun) {
  for (const bool gradient : {false, true}) {
    const Problem problem{.operation = Operation::cross_entropy,
                          .dtype = DType::bf16,
                          .reduction = Reduction::mean,
                          .gradient = gradient,
                          .rows = 40000,
                          .columns = 1000};
    tuner::TrialMemory memory(*device, generator::timing_trial(problem, test_seed()));
    for (const generator::Config& config : some_configs(problem, limits, 4, 3)) {
      const tuner::Kernel kernel(*device, tuner::build(*device, cache, problem, config));
      const auto first = memory.run(kernel);
      for (int run = 0; run < 5; ++run) EXPECT_EQ(memory.run(kernel), first) << to_text(config);
    }
  }
}

/// rows x columns beyond 2^31: the last row must come out like the same row of a small problem.
TEST_F(GpuNumerics, MoreElementsThanAnIntCounts) {
  const Problem large{.operation = Operation::softmax, .dtype = DType::bf16, .rows = 70000, .columns = 32768};
  const std::size_t bytes = static_cast<std::size_t>(large.rows * large.columns * 2);
  if (device->free_bytes() < 3 * bytes) GTEST_SKIP() << "needs " << 3 * bytes << " bytes of device memory";
  tuner::TrialMemory memory(*device, generator::timing_trial(large, test_seed()));
  Problem small = large;
  small.rows = 1;
  const std::size_t row_bytes = static_cast<std::size_t>(large.columns) * 2;
  runtime::Buffer expected(*device, row_bytes);
  for (const generator::Config& config : some_configs(large, limits, 3, 5)) {
    const tuner::Kernel kernel(*device, tuner::build(*device, cache, large, config));
    memory.launch(kernel);
    Arguments last = memory.trial().arguments;
    const auto offset = static_cast<std::ptrdiff_t>((large.rows - 1) * large.columns * 2);
    const std::byte* result = static_cast<const std::byte*>(last.output) + offset;
    last.input = static_cast<const std::byte*>(last.input) + offset;
    last.output = expected.data();
    last.rows = 1;
    kernel.launch(small, last, device->trial_stream());
    device->synchronize(device->trial_stream());
    std::vector<std::byte> got(row_bytes), want(row_bytes);
    device->download(got.data(), result, row_bytes);
    device->download(want.data(), expected.data(), row_bytes);
    EXPECT_EQ(got, want) << to_text(config);
    double sum = 0;
    for (std::int64_t i = 0; i < large.columns; ++i)
      sum += generator::read_element(large.dtype, got.data(), i);
    EXPECT_NEAR(sum, 1., 0.01) << to_text(config);
  }
}

}  // namespace
}  // namespace ce::test
