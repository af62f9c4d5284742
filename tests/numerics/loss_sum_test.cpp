// ce_sum on the host device: of as many rows as it has blocks for, of more, and of losses that are 0, against f64.
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

const generator::Config config_of_rows{.variant = "warp", .warps = 4, .vec = 1, .lanes = 1, .rows = 1};

/// Zeroed, for a problem that needs one.
class ZeroedWorkspace {
 public:
  explicit ZeroedWorkspace(const Problem& problem)
      : memory_(static_cast<std::size_t>(workspace_bytes(problem)) / sizeof(std::int64_t) + 1) {}
  [[nodiscard]] Workspace* get() { return reinterpret_cast<Workspace*>(memory_.data()); }

 private:
  std::vector<std::int64_t> memory_;  // aligned as a Workspace
};

/// The last step of a mean of losses alone, after rows that left these losses.
class LossSum {
 public:
  explicit LossSum(const Problem& problem) : problem_(problem) {
    const generator::Program program = tuner::build(*device_, cache_, problem, config_of_rows);
    const generator::Step& step = program.steps.back();
    module_ = device_->load(program.sources[step.source].binary);
    launch_ = {module_->function(step.entry),
               {.blocks = static_cast<std::uint32_t>(step.blocks(program.config, problem)),
                .threads = step.threads,
                .shared_bytes = step.shared_bytes}};
  }

  [[nodiscard]] float of(const std::vector<float>& losses, const std::vector<std::int64_t>& targets) {
    ZeroedWorkspace zeroed(problem_);
    Workspace* const workspace = zeroed.get();
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

/// Of more rows than have their targets counted. Most losses are 0, and with a negative weight -0.
TEST(LossSum, CountsRowsWithoutALoss) {
  const Problem problem{.operation = generator::Operation::cross_entropy,
                        .dtype = DType::f32,
                        .loss_dtype = DType::f32,
                        .reduction = Reduction::mean,
                        .has = {.row_weights = true, .argmax_out = true},
                        .rows = (std::int64_t{1} << 17) + 1,
                        .columns = 2};
  const auto device = runtime::open_host_device();
  cache::Cache cache = cache::Cache::in_memory();
  const auto rows = static_cast<std::size_t>(problem.rows);
  std::vector<float> logits, weights;
  std::vector<std::int64_t> targets;
  std::vector<long long> argmax(rows);
  std::int64_t counted = 0, equal = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const bool is_equal = row % 100 == 0, is_ignored = row % 3 == 1;
    logits.insert(logits.end(), {is_equal ? 0.F : 400.F, 0.F});
    weights.push_back(row % 2 == 0 ? -1.F : 1.F);
    targets.push_back(is_ignored ? ignored : 0);
    counted += is_ignored ? 0 : 1;
    equal += is_equal && !is_ignored ? 1 : 0;  // their weights are -1
  }
  ZeroedWorkspace workspace(problem);
  TargetStatus status{};
  float loss = 0;
  Arguments arguments{.input = logits.data(),
                      .input_layout = {.row = problem.columns, .column = 1},
                      .rows = problem.rows,
                      .target = targets.data(),
                      .loss = &loss,
                      .row_weight = weights.data(),
                      .workspace = workspace.get(),
                      .status = &status,
                      .ignore_index = ignored};
  generator::output_of<&generator::CrossEntropyFlags::argmax_out>(arguments) = argmax.data();
  tuner::Kernel(*device, tuner::build(*device, cache, problem, config_of_rows))
      .launch(problem, arguments, nullptr);
  device->synchronize(nullptr);
  const double expected = -std::log(2.) * static_cast<double>(equal) / static_cast<double>(counted);
  EXPECT_NEAR(loss, expected, -1e-5 * expected);
  EXPECT_EQ(status.count, 0);
}

}  // namespace
}  // namespace ce::test
