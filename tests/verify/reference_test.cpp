#include "tuner/verify/reference.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

namespace ce::generator {
namespace {

using Values = std::vector<double>;
using Targets = std::vector<std::int64_t>;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

Values of_row(void (*operation)(std::span<const double>, std::span<double>), const Values& x) {
  Values y(x.size());
  operation(x, y);
  return y;
}

void expect_near(const Values& got, const Values& want, double tolerance = 1e-14) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << "at " << i;
}

/// Both softmax_row() and its backward pass, of all rows.
struct TorchSoftmax {
  Values output, gradient;
};

/// One call of torch.nn.functional.cross_entropy.
struct TorchCrossEntropy {
  Reduction reduction = Reduction::none;
  Targets targets{};  ///< empty: torch_probabilities
  std::int64_t ignore_index = -100;
  bool weights = false;
  double smoothing = 0, z_scale = 0, cap = 0, scale = 1;
  bool masked = false;  ///< some logits are -infinity
  Values loss;          ///< [rows] or one
  Values gradient;      ///< with the upstream gradient of rows or, where reduced, the first of them
};

#include "tests/verify/reference_values.inc"

/// Close, infinite or NaN as well.
void expect_as(const Values& got, const Values& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    if (std::isfinite(want[i]))
      EXPECT_NEAR(got[i], want[i], 1e-14 * (1 + std::abs(want[i]))) << "at " << i;
    else
      EXPECT_TRUE(std::isnan(want[i]) ? std::isnan(got[i]) : got[i] == want[i]) << got[i] << " at " << i;
}

CrossEntropyAmounts<double> only(bool CrossEntropyFlags::*option, double amount) {
  CrossEntropyAmounts<double> amounts;
  amounts[option] = amount;
  return amounts;
}

TEST(ReferenceAsPyTorch, SoftmaxAndItsBackwardPass) {
  constexpr std::size_t columns = 4;
  for (const bool logarithm : {false, true}) {
    const TorchSoftmax& torch = logarithm ? torch_log_softmax : torch_softmax;
    Values output(torch_logits.size()), gradient(torch_logits.size());
    for (std::size_t at = 0; at < torch_logits.size(); at += columns) {
      const auto row_of = [at](auto& values) { return std::span(values).subspan(at, columns); };
      (logarithm ? log_softmax_row : softmax_row)(row_of(torch_logits), row_of(output));
      (logarithm ? log_softmax_backward_row : softmax_backward_row)(row_of(torch_output_gradient),
                                                                    row_of(torch.output), row_of(gradient));
    }
    expect_as(output, torch.output);
    expect_as(gradient, torch.gradient);
  }
}

TEST(ReferenceAsPyTorch, CrossEntropyWithEveryOption) {
  for (std::size_t i = 0; i < torch_cross_entropy.size(); ++i) {
    const TorchCrossEntropy& torch = torch_cross_entropy[i];
    SCOPED_TRACE(testing::Message() << "case " << i);
    CrossEntropyInputs inputs{.columns = 4,
                              .logits = torch.masked ? torch_masked_logits : torch_logits,
                              .targets = torch.targets,
                              .ignore_index = torch.ignore_index,
                              .reduction = torch.reduction};
    inputs.amounts[&CrossEntropyFlags::smoothing] = torch.smoothing;
    inputs.amounts[&CrossEntropyFlags::z_loss] = torch.z_scale;
    inputs.amounts[&CrossEntropyFlags::softcap] = torch.cap;
    inputs.amounts[&CrossEntropyFlags::scale] = torch.scale;
    if (torch.targets.empty()) inputs.probabilities = torch_probabilities;
    if (torch.weights) inputs.weights = torch_weights;
    const bool reduced = torch.reduction != Reduction::none;
    inputs.upstream = std::span(torch_upstream).first(reduced ? 1 : 3);
    const CrossEntropyReference reference = cross_entropy(inputs);
    Values expected = torch.loss;
    // PyTorch multiplies a probability of 0 with an infinity; here such a class adds nothing.
    if (torch.masked && torch.targets.empty())
      for (std::size_t row = 0; row < expected.size(); ++row)
        if (std::isnan(expected[row])) {
          EXPECT_TRUE(std::isfinite(reference.losses[row]));
          expected[row] = reference.losses[row];
        }
    expect_as(reduced ? Values{reference.loss} : reference.losses, expected);
    expect_as(reference.gradient, torch.gradient);
  }
}

TEST(Reference, SoftmaxOfKnownRows) {
  expect_near(of_row(softmax_row, {0., std::log(3.)}), {0.25, 0.75});
  expect_near(of_row(log_softmax_row, {0., std::log(3.)}), {std::log(0.25), std::log(0.75)});
  EXPECT_EQ(of_row(softmax_row, {5.}), Values{1.});
  EXPECT_EQ(of_row(log_softmax_row, {5.}), Values{0.});
}

/// As PyTorch answers.
TEST(Reference, SoftmaxOfRowsWithInfinitiesAndNaN) {
  EXPECT_EQ(of_row(softmax_row, {-infinity, 0., -infinity}), (Values{0., 1., 0.}));
  EXPECT_EQ(of_row(log_softmax_row, {-infinity, 0., -infinity}), (Values{-infinity, 0., -infinity}));
  for (const Values& row : {Values{-infinity, -infinity}, {infinity, 0.}, {std::nan(""), 0.}})
    for (const auto operation : {softmax_row, log_softmax_row})
      for (const double y : of_row(operation, row)) EXPECT_TRUE(std::isnan(y));
}

/// Against the derivative of sum of dy y by differences.
TEST(Reference, SoftmaxBackwardIsTheDerivative) {
  const Values x{0.3, -1.2, 2., 0.7}, dy{1., -2., 0.5, 3.};
  for (const bool logarithm : {false, true}) {
    const auto forward = logarithm ? log_softmax_row : softmax_row;
    Values dx(x.size());
    (logarithm ? log_softmax_backward_row : softmax_backward_row)(dy, of_row(forward, x), dx);
    for (std::size_t i = 0; i < x.size(); ++i) {
      constexpr double step = 1e-5;
      const auto moved = [&](double by) {
        Values shifted = x;
        shifted[i] += by;
        const Values y = of_row(forward, shifted);
        double sum = 0;
        for (std::size_t k = 0; k < y.size(); ++k) sum += dy[k] * y[k];
        return sum;
      };
      EXPECT_NEAR(dx[i], (moved(step) - moved(-step)) / (2 * step), 1e-9);
    }
  }
}

const Values logits{0., std::log(3.), 0., 0.};  // probabilities 1/4 3/4, 1/2 1/2
const Targets targets{1, 0};

TEST(Reference, CrossEntropyOfKnownRows) {
  const auto mean =
      cross_entropy({.columns = 2, .logits = logits, .targets = targets, .reduction = Reduction::mean});
  expect_near(mean.losses, {-std::log(0.75), std::log(2.)});
  EXPECT_NEAR(mean.loss, (-std::log(0.75) + std::log(2.)) / 2, 1e-15);
  expect_near(mean.gradient, {0.25 / 2, -0.25 / 2, -0.5 / 2, 0.5 / 2});
  expect_near(mean[&CrossEntropyFlags::lse_out], {std::log(4.), std::log(2.)});
  EXPECT_EQ(mean[&CrossEntropyFlags::argmax_out], (std::vector<double>{1, 0}));
  EXPECT_EQ(mean[&CrossEntropyFlags::hit_out], (std::vector<double>{1, 1}));
}

/// torch.nn.CrossEntropyLoss(weight=[1, 3]): a mean is divided by the weights of the targets.
TEST(Reference, WeightedMean) {
  const Values weights{1., 3.};
  const auto mean = cross_entropy(
      {.columns = 2, .logits = logits, .targets = targets, .weights = weights, .reduction = Reduction::mean});
  EXPECT_NEAR(mean.loss, (3 * -std::log(0.75) + std::log(2.)) / 4, 1e-15);
  expect_near(mean.gradient, {3 * 0.25 / 4, -3 * 0.25 / 4, -0.5 / 4, 0.5 / 4});
}

/// And with label_smoothing=0.2: the smooth part is weighted by class, divided by the weights of the targets,
/// and leaves ignored rows out.
TEST(Reference, SmoothingWithWeightsAndIgnoredRows) {
  const Values weights{1., 3.}, three_rows{0., std::log(3.), 0., 0., 7., 8.};
  const auto mean = cross_entropy({.columns = 2,
                                   .logits = three_rows,
                                   .targets = Targets{1, 0, -100},
                                   .weights = weights,
                                   .reduction = Reduction::mean,
                                   .amounts = only(&CrossEntropyFlags::smoothing, 0.2)});
  const double first = 0.8 * 3 * -std::log(0.75) + 0.1 * (-std::log(0.25) + 3 * -std::log(0.75));
  const double second = 0.8 * std::log(2.) + 0.1 * (std::log(2.) + 3 * std::log(2.));
  EXPECT_NEAR(mean.loss, (first + second) / 4, 1e-15);
  EXPECT_EQ(mean.losses[2], 0.);
}

/// As Liger-Kernel: not weighted, divided by the number of counted rows.
TEST(Reference, ZLossIsDividedByRows) {
  const Values weights{1., 3.};
  const auto mean = cross_entropy({.columns = 2,
                                   .logits = logits,
                                   .targets = targets,
                                   .weights = weights,
                                   .reduction = Reduction::mean,
                                   .amounts = only(&CrossEntropyFlags::z_loss, 0.1)});
  const double z = 0.1 * (std::pow(std::log(4.), 2) + std::pow(std::log(2.), 2)) / 2;
  EXPECT_NEAR(mean.z_loss, z, 1e-15);
  EXPECT_NEAR(mean.loss, (3 * -std::log(0.75) + std::log(2.)) / 4 + z, 1e-15);
}

TEST(Reference, ProbabilityTargets) {
  const Values probabilities{0.5, 0.5, 1., 0.};
  const auto sum = cross_entropy(
      {.columns = 2, .logits = logits, .probabilities = probabilities, .reduction = Reduction::mean});
  EXPECT_NEAR(sum.loss, (-0.5 * std::log(0.25) - 0.5 * std::log(0.75) + std::log(2.)) / 2, 1e-15);
  expect_near(sum.gradient, {-0.25 / 2, 0.25 / 2, -0.5 / 2, 0.5 / 2});
}

TEST(Reference, SoftCapAndScale) {
  const Values x{30., -4.};
  CrossEntropyAmounts<double> capped_and_scaled = only(&CrossEntropyFlags::softcap, 5);
  capped_and_scaled[&CrossEntropyFlags::scale] = 0.5;
  const auto capped = cross_entropy(
      {.columns = 2, .logits = x, .targets = Targets{1}, .amounts = capped_and_scaled, .gradient = false});
  const double a = 5 * std::tanh(3.), b = 5 * std::tanh(-0.4);
  EXPECT_NEAR(capped.loss, std::log(std::exp(a) + std::exp(b)) - b, 1e-14);
  EXPECT_NEAR(capped[&CrossEntropyFlags::lse_out][0], std::log(std::exp(a) + std::exp(b)), 1e-14);
  EXPECT_TRUE(capped.gradient.empty());
}

/// Every combination of options: the gradient is the derivative of the loss, and the same from the saved
/// logsumexp.
TEST(Reference, GradientIsTheDerivativeOfTheLoss) {
  const Values x{0.3, -1.2, 2., 0.7, 1.5, 0.1, -0.4, 0.9, 0.2, 1., 1., -2.};
  const Values p{0.2, 0.3, 0.1, 0.4, 0., 1., 0., 0., 0.25, 0.5, 0.125, 0.125}, w{1., 0.5, 2., 0.};
  const Values upstream{2., -0.5, 1.5}, of_entropy{0.7, -2., 0.4}, of_lse{-0.3, 0.2, 1.1},
      row_weights{0.5, 3., 0.}, row_scales{2., 0.5, 1.25};
  for (int options = 0; options < 1 << 9; ++options)
    for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
      const auto has = [options](int bit) { return (options >> bit & 1) != 0; };
      CrossEntropyInputs inputs{.columns = 4, .logits = x, .reduction = reduction};
      const Targets classes{2, -100, 1};
      if (has(0))
        inputs.probabilities = p;
      else
        inputs.targets = classes;
      if (has(1)) inputs.amounts[&CrossEntropyFlags::smoothing] = 0.3;
      if (has(2)) inputs.weights = w;
      if (has(3)) inputs.amounts[&CrossEntropyFlags::z_loss] = 0.1;
      if (has(4)) inputs.amounts[&CrossEntropyFlags::softcap] = 3;
      if (has(5)) inputs.amounts[&CrossEntropyFlags::scale] = 0.6;
      if (has(6)) inputs.upstream = upstream;
      if (has(7)) inputs.entropy_upstream = of_entropy;
      if (has(7)) inputs.lse_upstream = of_lse;
      if (has(8)) inputs.row_weights = row_weights;
      if (has(8)) inputs.row_scales = row_scales;
      if (has(8) && reduction == Reduction::mean) inputs.divisor = 2.5;
      const auto reference = cross_entropy(inputs);
      CrossEntropyInputs backward = inputs;
      backward.lse = reference[&CrossEntropyFlags::lse_out];
      if (has(7)) backward.entropy = reference[&CrossEntropyFlags::entropy_out];
      expect_near(cross_entropy(backward).gradient, reference.gradient, 1e-13);

      for (std::size_t i = 0; i < x.size(); ++i) {
        constexpr double step = 1e-5;
        const auto objective = [&](double by) {
          Values moved = x;
          moved[i] += by;
          CrossEntropyInputs other = inputs;
          other.logits = moved;
          other.gradient = false;
          const auto result = cross_entropy(other);
          const double up = has(6) ? upstream[i / 4] : 1.;
          const double loss = up * (reduction == Reduction::none ? result.losses[i / 4] : result.loss);
          if (!has(7) || (!has(0) && i / 4 == 1))
            return loss;  // of a row that is ignored nothing has a gradient
          return loss + of_entropy[i / 4] * result[&CrossEntropyFlags::entropy_out][i / 4] +
                 of_lse[i / 4] * result[&CrossEntropyFlags::lse_out][i / 4];
        };
        EXPECT_NEAR(reference.gradient[i], (objective(step) - objective(-step)) / (2 * step), 1e-8)
            << "options " << options << ", element " << i;
        EXPECT_GE(static_cast<double>(reference.gradient_terms[i]) * (1 + 1e-6),
                  std::abs(reference.gradient[i]));
      }
    }
}

TEST(Reference, LogProbabilityEntropyAndTokenScaling) {
  const Values x{0., std::log(2.), std::log(5.), -infinity}, saved{0.1};
  const Targets classes{1};
  CrossEntropyInputs inputs{.columns = 4, .logits = x, .targets = classes};
  CrossEntropyReference plain = cross_entropy(inputs);
  EXPECT_NEAR(plain[&CrossEntropyFlags::logprob_out][0], std::log(0.25), 1e-15);
  EXPECT_NEAR(plain[&CrossEntropyFlags::entropy_out][0],
              -(0.125 * std::log(0.125) + 0.25 * std::log(0.25) + 0.625 * std::log(0.625)), 1e-15);
  inputs.amounts[&CrossEntropyFlags::token_scaling] = 2;  // the square of 1/4, of which no gradient is taken
  const CrossEntropyReference scaled = cross_entropy(inputs);
  EXPECT_NEAR(scaled.losses[0], plain.losses[0] / 16, 1e-15);
  for (double& gradient : plain.gradient) gradient /= 16;
  expect_near(scaled.gradient, plain.gradient, 1e-15);
}

/// The probability of the target is 1 - 2e-20: a difference would leave nothing of it.
TEST(Reference, NothingCancelsWhereTheTargetIsAlmostCertain) {
  const Values row{std::log(2e20), 0., std::log(3.)};
  const auto one = cross_entropy({.columns = 3, .logits = row, .targets = Targets{0}});
  EXPECT_NEAR(one.losses[0], 2e-20, 1e-33);
  expect_near(one.gradient, {-2e-20, 0.5e-20, 1.5e-20}, 1e-33);
}

/// The logsumexp of such logits is one of them; the loss is still log(4).
TEST(Reference, LargeLogitsKeepTheirNumber) {
  const Values row(4, -1e30);
  const auto one = cross_entropy({.columns = 4,
                                  .logits = row,
                                  .targets = Targets{2},
                                  .amounts = only(&CrossEntropyFlags::smoothing, 0.1)});
  EXPECT_NEAR(one.losses[0], std::log(4.), 1e-15);
}

TEST(Reference, IgnoredAndBadTargets) {
  const Values ones(8, 1.);
  CrossEntropyInputs inputs{.columns = 2,
                            .logits = ones,
                            .reduction = Reduction::sum,
                            .amounts = only(&CrossEntropyFlags::z_loss, 0.1)};
  const Targets some{-100, 0, 2, -1}, ignored(4, -100);
  inputs.targets = some;
  const auto sum = cross_entropy(inputs);
  EXPECT_EQ(sum.losses[0], 0.);
  EXPECT_EQ(sum.z_losses[0], 0.);
  EXPECT_EQ(sum.gradient[0], 0.);
  EXPECT_TRUE(std::isnan(sum.losses[2]));
  EXPECT_TRUE(std::isnan(sum.z_losses[2]));
  EXPECT_TRUE(std::isnan(sum.gradient[4]));
  EXPECT_EQ(sum.bad_targets, 2);
  EXPECT_EQ(sum.first_bad_row, 2);
  EXPECT_EQ(sum[&CrossEntropyFlags::hit_out], (std::vector<double>{0, 1, 0, 0}));
  for (const double lse : sum[&CrossEntropyFlags::lse_out])
    EXPECT_NEAR(lse, 1 + std::log(2.), 1e-15) << "valid for every row";
  inputs.targets = ignored;
  inputs.reduction = Reduction::mean;
  EXPECT_TRUE(std::isnan(cross_entropy(inputs).loss)) << "a mean over nothing";
}

TEST(Reference, ArgmaxIsTheFirstNaNElseTheFirstLargestLogit) {
  const Values rows{1., 3.,       3.,        2.,        infinity,  std::nan(""),
                    0., infinity, -infinity, -infinity, -infinity, -infinity};
  const auto all =
      cross_entropy({.columns = 3, .logits = rows, .targets = Targets{1, 1, 1, 1}, .gradient = false});
  EXPECT_EQ(all[&CrossEntropyFlags::argmax_out], (std::vector<double>{1, 2, 1, 0}));
  EXPECT_EQ(all[&CrossEntropyFlags::hit_out], (std::vector<double>{1, 0, 1, 0}));
}

}  // namespace
}  // namespace ce::generator
