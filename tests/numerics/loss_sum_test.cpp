// ce_sum on the host device: losses of as many rows as it has blocks for, and of more, against f64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "cache/cache.hpp"
#include "generator/config.hpp"
#include "generator/problem.hpp"
#include "generator/source.hpp"
#include "runtime/device.hpp"
#include "runtime/host/device.hpp"
#include "templates/arguments.cuh"
#include "tests/seed.hpp"
#include "tuner/kernel.hpp"

namespace ce::test {
namespace {

using generator::Problem;

constexpr std::int64_t ignored = -100;

/// The last step of a mean of losses alone, after rows that left these losses.
class LossSum {
 public:
  explicit LossSum(const Problem& problem) : problem_(problem) {
    const generator::Program program = tuner::build(
        *device_, cache_, problem, {.variant = "warp", .warps = 4, .vec = 1, .lanes = 1, .rows = 1});
    const generator::Step& step = program.steps.back();
    module_ = device_->load(program.sources[step.source].binary);
    launch_ = {module_->function(step.entry),
               {.blocks = static_cast<std::uint32_t>(step.blocks(program.config, problem)),
                .threads = step.threads,
                .shared_bytes = step.shared_bytes}};
  }

  [[nodiscard]] float of(const std::vector<float>& losses, const std::vector<std::int64_t>& targets) {
    std::vector<std::byte> memory(static_cast<std::size_t>(workspace_bytes(problem_)) + alignof(Workspace));
    void* place = memory.data();
    std::size_t room = memory.size();
    auto* workspace = static_cast<Workspace*>(
        std::align(alignof(Workspace), memory.size() - alignof(Workspace), place, room));
    std::copy(losses.begin(), losses.end(), workspace->losses);
    float loss = 0;
    Arguments arguments{.rows = problem_.rows,
                        .target = targets.data(),
                        .loss = &loss,
                        .workspace = workspace,
                        .ignore_index = ignored};
    device_->launch({&launch_, 1}, &arguments, sizeof arguments, nullptr);
    device_->synchronize(nullptr);
    EXPECT_EQ(workspace->finished, 0) << "the next call finds blocks of this one";
    return loss;
  }
  [[nodiscard]] std::uint32_t blocks() const { return launch_.launch.blocks; }

 private:
  Problem problem_;
  std::unique_ptr<runtime::Device> device_ = runtime::open_host_device();
  cache::Cache cache_ = cache::Cache::in_memory();
  std::unique_ptr<runtime::Module> module_;
  runtime::KernelLaunch launch_;
};

/// The kernels of rows leave -0 for those that do not count.
TEST(LossSum, IsTheMeanOfTheRowsThatCount) {
  std::mt19937_64 random(test_seed());
  constexpr std::int64_t all_blocks = most_sum_blocks * rows_per_sum;
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{8193}, std::int64_t{1} << 17,
                                  (std::int64_t{1} << 17) + 1, all_blocks + 9000}) {
    LossSum sum({.operation = generator::Operation::cross_entropy,
                 .dtype = DType::bf16,
                 .loss_dtype = DType::f32,
                 .reduction = Reduction::mean,
                 .rows = rows,
                 .columns = 2});
    EXPECT_LE(sum.blocks(), most_sum_blocks);
    std::vector<float> losses(static_cast<std::size_t>(rows));
    std::vector<std::int64_t> targets(losses.size());
    double total = 0;
    std::int64_t counted = 0;
    for (std::size_t row = 0; row < losses.size(); ++row) {
      const bool counts = row == 0 || random() % 3 != 0;
      // A loss may be 0, which is not -0.
      losses[row] = !counts ? -0.F : random() % 5 == 0 ? 0.F : static_cast<float>(random() % 1000) / 64;
      targets[row] = counts ? 1 : ignored;
      total += losses[row];
      counted += counts ? 1 : 0;
    }
    const double expected = total / static_cast<double>(counted);
    EXPECT_NEAR(sum.of(losses, targets), expected, 1e-5 * expected) << rows << " rows";
  }
}

}  // namespace
}  // namespace ce::test
