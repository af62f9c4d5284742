// What must hold whatever the kernel: sums of rows, shifts, permutations, and the same bits again.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include "tests/ce/fixture.hpp"
#include "tests/seed.hpp"

namespace ce::test {
namespace {

/// Rows that all start on a 128-byte line: how a row is cut, and so the order of its sums, is then the same
/// for all.
constexpr std::int64_t rows = 24, columns = 384;

class Properties : public ContextTest, public testing::WithParamInterface<DType> {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    context_ = std::make_unique<Context>(options(Policy::lookup));
  }
  Context& context() { return *context_; }
  std::mt19937_64& random() { return random_; }

  std::vector<double> softmax(Matrix& input) {
    Matrix output(context(), GetParam(), rows, columns);
    context().run(Softmax{}, {.input = input.tensor(), .output = output.tensor()});
    context().synchronize();
    return output.values();
  }
  /// The gradient of the summed loss.
  std::vector<double> gradient(Matrix& logits, const std::vector<std::int64_t>& targets,
                               const CrossEntropy& operation) {
    Matrix target(context(), DType::i64, rows, 1), loss(context(), DType::f32, 1, 1),
        grad(context(), GetParam(), rows, columns);
    target.set_indices(targets);
    context().run(
        operation,
        {.logits = logits.tensor(), .target = target.tensor(), .loss = loss.tensor(), .grad = grad.tensor()});
    context().synchronize();
    return grad.values();
  }
  static double row_sum(const std::vector<double>& values, std::int64_t row) {
    const auto start = values.begin() + row * columns;
    return std::accumulate(start, start + columns, 0.);
  }
  std::vector<std::int64_t> random_targets() {
    std::vector<std::int64_t> targets;
    for (std::int64_t row = 0; row < rows; ++row)
      targets.push_back(std::uniform_int_distribution<std::int64_t>(0, columns - 1)(random()));
    return targets;
  }
  /// Of a sum over a row, where each element is rounded by itself.
  static double tolerance() { return 4e-6 + rounding(GetParam()); }

 private:
  std::mt19937_64 random_{test_seed()};
  std::unique_ptr<Context> context_;
};

TEST_P(Properties, ProbabilitiesOfARowAddUpToOne) {
  Matrix input(context(), GetParam(), rows, columns);
  input.set(random_values(rows * columns, random()));
  const std::vector<double> output = softmax(input);
  for (std::int64_t row = 0; row < rows; ++row)
    EXPECT_NEAR(row_sum(output, row), 1., tolerance()) << "row " << row;
}

TEST_P(Properties, TheGradientOfARowAddsUpToZero) {
  Matrix logits(context(), GetParam(), rows, columns);
  logits.set(random_values(rows * columns, random()));
  const std::vector<double> grad = gradient(logits, random_targets(), {.reduction = Reduction::sum});
  for (std::int64_t row = 0; row < rows; ++row)
    EXPECT_NEAR(row_sum(grad, row), 0., 2 * tolerance()) << "row " << row;
}

/// Whole numbers, so that a shift is exact in every dtype.
TEST_P(Properties, AShiftOfAllLogitsChangesNothing) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < rows * columns; ++i)
    values.push_back(static_cast<double>(std::uniform_int_distribution<int>(-20, 20)(random())));
  Matrix input(context(), GetParam(), rows, columns);
  input.set(values);
  const std::vector<double> plain = softmax(input);
  for (double& x : values) x += 64;
  input.set(values);
  // Probabilities below 2^-14 are subnormal numbers of f16, 2^-24 apart.
  const double step = GetParam() == DType::f16 ? 0x1p-24 : 1e-30;
  expect_near(softmax(input), plain, 2e-6 + 2 * rounding(GetParam()), step, "shifted");
}

TEST_P(Properties, RowsDoNotKnowOfEachOther) {
  const std::vector<double> values = random_values(rows * columns, random());
  std::vector<std::int64_t> order(rows);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random());
  std::vector<double> permuted;
  for (const std::int64_t row : order)
    permuted.insert(permuted.end(), values.begin() + row * columns, values.begin() + (row + 1) * columns);
  Matrix input(context(), GetParam(), rows, columns);
  input.set(values);
  const std::vector<double> plain = softmax(input);
  input.set(permuted);
  const std::vector<double> moved = softmax(input);
  for (std::size_t i = 0; i < order.size(); ++i)
    EXPECT_TRUE(std::equal(moved.begin() + static_cast<std::int64_t>(i) * columns,
                           moved.begin() + static_cast<std::int64_t>(i + 1) * columns,
                           plain.begin() + order[i] * columns))
        << "row " << order[i];
}

TEST_P(Properties, TheSameBitsAgain) {
  Matrix logits(context(), GetParam(), rows, columns);
  logits.set(random_values(rows * columns, random()));
  const std::vector<std::int64_t> targets = random_targets();
  const CrossEntropy operation{.label_smoothing = 0.1F, .z_loss = 1e-4F};
  EXPECT_EQ(gradient(logits, targets, operation), gradient(logits, targets, operation));
}

INSTANTIATE_TEST_SUITE_P(DTypes, Properties, testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& test) { return std::string(name(test.param)); });

}  // namespace
}  // namespace ce::test
