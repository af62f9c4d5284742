#include "generator/reference.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "generator/elements.hpp"
#include "generator/trial.hpp"

namespace ce::generator {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(Reference, SoftmaxOfKnownRows) {
  const std::vector<double> row = softmax_row(std::vector<double>{0., std::log(3.)});
  EXPECT_NEAR(row[0], 0.25, 1e-15);
  EXPECT_NEAR(row[1], 0.75, 1e-15);
  EXPECT_EQ(softmax_row(std::vector<double>{5.})[0], 1.);
}

/// As PyTorch answers.
TEST(Reference, SoftmaxOfRowsWithInfinitiesAndNaN) {
  const std::vector<double> some = softmax_row(std::vector<double>{-infinity, 0., -infinity});
  EXPECT_EQ(some, (std::vector<double>{0., 1., 0.}));
  for (const std::vector<double>& row :
       {std::vector<double>{-infinity, -infinity}, {infinity, 0.}, {std::nan(""), 0.}})
    for (const double y : softmax_row(row)) EXPECT_TRUE(std::isnan(y));
}

TEST(Reference, CrossEntropyOfKnownRows) {
  const std::vector<double> logits{0., std::log(3.), 0., 0.};
  const auto mean = cross_entropy(logits, std::vector<std::int64_t>{1, 0}, 2, -100, Reduction::mean);
  EXPECT_NEAR(mean.losses[0], -std::log(0.75), 1e-15);
  EXPECT_NEAR(mean.losses[1], std::log(2.), 1e-15);
  EXPECT_NEAR(mean.loss, (-std::log(0.75) + std::log(2.)) / 2, 1e-15);
  EXPECT_NEAR(mean.gradient[0], 0.25 / 2, 1e-15);
  EXPECT_NEAR(mean.gradient[1], -0.25 / 2, 1e-15);
}

TEST(Reference, IgnoredAndBadTargets) {
  const std::vector<double> logits(8, 1.);
  const auto sum = cross_entropy(logits, std::vector<std::int64_t>{-100, 0, 2, -1}, 2, -100, Reduction::sum);
  EXPECT_EQ(sum.losses[0], 0.);
  EXPECT_EQ(sum.gradient[0], 0.);
  EXPECT_TRUE(std::isnan(sum.losses[2]));
  EXPECT_TRUE(std::isnan(sum.gradient[4]));
  EXPECT_EQ(sum.bad_targets, 2);
  EXPECT_EQ(sum.first_bad_row, 2);
  const auto none = cross_entropy(logits, std::vector<std::int64_t>(4, -100), 2, -100, Reduction::mean);
  EXPECT_TRUE(std::isnan(none.loss)) << "a mean over nothing";
}

/// mismatch() is what every verification rests on: it must see one wrong element, a write beyond the row, and
/// a counter.
TEST(Trial, MismatchSeesWhatIsWrong) {
  const Problem problem{.operation = Operation::cross_entropy,
                        .reduction = Reduction::mean,
                        .gradient = true,
                        .rows = 64,
                        .columns = 37};
  for (const Trial& trial : verification_trials(problem, 1)) {
    std::vector<std::vector<std::byte>> right;
    for (const TrialTensor& tensor : trial.tensors) {
      std::vector<std::byte>& bytes = right.emplace_back(tensor.bytes);
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = tensor.initial[i % tensor.initial.size()];
    }
    for (const Expected& expected : trial.expected)
      for (std::int64_t row = 0; row < expected.rows; ++row)
        for (std::int64_t column = 0; column < expected.columns; ++column)
          write_element(expected.dtype, right[expected.tensor].data() + trial.tensors[expected.tensor].offset,
                        row * expected.stride + column,
                        expected.values[static_cast<std::size_t>(row * expected.columns + column)]);
    for (const ExpectedBytes& expected : trial.expected_bytes)
      std::memcpy(right[expected.tensor].data(), expected.bytes.data(), expected.bytes.size());
    EXPECT_EQ(mismatch(trial, right), std::nullopt);

    const Expected& matrix = trial.expected.front();
    auto wrong = right;
    const double last = matrix.values.back();
    write_element(matrix.dtype, wrong[matrix.tensor].data() + trial.tensors[matrix.tensor].offset,
                  (matrix.rows - 1) * matrix.stride + matrix.columns - 1,
                  std::isnan(last) ? 0. : last + 1e-3);
    EXPECT_TRUE(mismatch(trial, wrong)) << "the last element";
    wrong = right;
    wrong[matrix.tensor][trial.tensors[matrix.tensor].offset + static_cast<std::size_t>(matrix.columns) * 4] =
        std::byte{0};
    EXPECT_TRUE(mismatch(trial, wrong)) << "the padding behind a row";
    for (const ExpectedBytes& expected : trial.expected_bytes) {
      wrong = right;
      wrong[expected.tensor][0] ^= std::byte{1};
      EXPECT_TRUE(mismatch(trial, wrong)) << trial.tensors[expected.tensor].name;
    }
  }
}

}  // namespace
}  // namespace ce::generator
