// How near results in f32 are to f64: each element relative to itself, so that nothing hides behind a larger one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/ce/fixture.hpp"
#include "tests/ce/formulas.hpp"
#include "tests/seed.hpp"

namespace ce::test {
namespace {

constexpr double epsilon = 0x1p-23;

class Accuracy : public ContextTest {
 protected:
  /// Multiples of 2^-10, so that in f32 their differences are exact.
  static std::vector<double> logits(std::int64_t count, double lowest, double highest,
                                    std::mt19937_64& random) {
    std::uniform_real_distribution<double> uniform(lowest, highest);
    std::vector<double> values(static_cast<std::size_t>(count));
    for (double& x : values) x = std::round(uniform(random) * 1024) / 1024;
    return values;
  }
};

TEST_F(Accuracy, SoftmaxOfLogitsFarApartAndFarFromZero) {
  std::mt19937_64 random(test_seed());
  Context context(options(Policy::lookup));
  constexpr std::int64_t rows = 6, columns = 1000;
  std::vector<double> x = logits(rows * columns, -60, 0, random);
  for (std::size_t i = 0; i < x.size() / 2; ++i) x[i] += 1000;
  Matrix input(context, DType::f32, rows, columns), output(context, DType::f32, rows, columns);
  input.set(x);
  context.run(Softmax{}, {.input = input.tensor(), .output = output.tensor()});
  context.synchronize();
  std::vector<double> expected;
  for (auto row = x.begin(); row != x.end(); row += columns) {
    double sum = 0;
    for (auto i = row; i != row + columns; ++i) sum += std::exp(*i - *row);
    for (auto i = row; i != row + columns; ++i) expected.push_back(std::exp(*i - *row) / sum);
  }
  expect_near(output.values(), expected, 8 * epsilon, 0, "output");
}

/// The gradient of a sure row is what its sum has beside 1: 31 of 2^-26, in the hands of as many threads. No thread
/// and no pair of them has enough to change a 1 in f32; all of them make four units of it.
TEST_F(Accuracy, AGradientOfSoftmaxWhoseSumIsRoundedOnce) {
  Context context(options(Policy::lookup));
  constexpr std::int64_t columns = 4096, others = 31;
  std::vector<double> y(columns), dy(columns, 1);
  y[0] = 1;
  for (std::size_t i = 1; i <= others; ++i) y[8 * i] = 0x1p-26;
  Matrix output(context, DType::f32, 1, columns), output_grad(context, DType::f32, 1, columns);
  Matrix input_grad(context, DType::f32, 1, columns);
  output.set(y);
  output_grad.set(dy);
  context.run(
      SoftmaxBackward{},
      {.output = output.tensor(), .output_grad = output_grad.tensor(), .input_grad = input_grad.tensor()});
  context.synchronize();
  EXPECT_EQ(input_grad.values()[0], -4 * epsilon);
}

/// Under a cap, log(sum) and z[t] may be far larger than the loss: where all logits are next to the cap, and where one
/// in three is. The loss has f32, also of bf16.
TEST_F(Accuracy, ALossFarBelowTheCap) {
  struct Case {
    double lowest, highest, epsilons;
  };
  std::mt19937_64 random(test_seed());
  Context context(options(Policy::lookup));
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [lowest, highest, epsilons] : {Case{900, 1000, 1}, Case{-90, 90, 6}}) {
      SCOPED_TRACE(fmt::format("{} from {} to {}", name(dtype), lowest, highest));
      LossInput input{
          .operation = {.reduction = Reduction::none, .softcap = 30}, .rows = 64, .columns = 1000};
      Matrix x(context, dtype, input.rows, input.columns), target(context, DType::i64, input.rows, 1);
      Matrix loss(context, DType::f32, input.rows, 1);
      input.logits = x.set(logits(input.rows * input.columns, lowest, highest, random));
      for (std::int64_t row = 0; row < input.rows; ++row) input.target.push_back(row * 7);
      target.set_indices(input.target);
      context.run(input.operation, {.logits = x.tensor(), .target = target.tensor(), .loss = loss.tensor()});
      context.synchronize();
      expect_near(loss.values(), cross_entropy(input).loss, epsilons * epsilon, 0, "loss");
    }
}

/// A thread sees thousands of the classes of a row whose elements do not follow each other.
TEST_F(Accuracy, ALossOfProbabilitiesOfWideStridedRows) {
  std::mt19937_64 random(test_seed());
  Context context(options(Policy::lookup));
  LossInput input{.operation = {.reduction = Reduction::none}, .rows = 2, .columns = 152064};
  const Tensor view = class_dimension_second(nullptr, DType::f32, 1, input.columns, input.rows);
  Matrix x(context, view), target(context, view), loss(context, DType::f32, input.rows, 1);
  input.logits = x.set(random_values(input.rows * input.columns, random));
  std::uniform_real_distribution<double> share(0, 2. / static_cast<double>(input.columns));
  std::vector<double> shares(input.logits.size());
  for (double& p : shares) p = share(random);
  input.probabilities = target.set(shares);
  context.run(input.operation, {.logits = x.tensor(), .target = target.tensor(), .loss = loss.tensor()});
  context.synchronize();
  expect_near(loss.values(), cross_entropy(input).loss, 4 * epsilon, 0, "loss");
}

struct CapCase {
  std::string name;
  double range;       ///< of the logits, to both sides of zero
  double loss, grad;  ///< how far they may be off, relative to themselves
  float cap = 30;
  double ulps = 0;  ///< of the cap, by which a loss may be off besides
};
void PrintTo(const CapCase& which, std::ostream* out) { *out << which.name; }

class SoftCap : public Accuracy, public testing::WithParamInterface<CapCase> {};

TEST_P(SoftCap, LossAndGradient) {
  std::mt19937_64 random(test_seed());
  Context context(options(Policy::lookup));
  const float cap = GetParam().cap;
  LossInput input{.operation = {.reduction = Reduction::none, .softcap = cap}, .rows = 16, .columns = 1000};
  Matrix x(context, DType::f32, input.rows, input.columns), target(context, DType::i64, input.rows, 1);
  Matrix loss(context, DType::f32, input.rows, 1), grad(context, DType::f32, input.rows, input.columns);
  input.logits = x.set(logits(input.rows * input.columns, -GetParam().range, GetParam().range, random));
  for (std::int64_t row = 0; row < input.rows; ++row) input.target.push_back(row * 7);
  target.set_indices(input.target);
  context.run(
      input.operation,
      {.logits = x.tensor(), .target = target.tensor(), .loss = loss.tensor(), .grad = grad.tensor()});
  context.synchronize();
  const LossOutput expected = cross_entropy(input);
  expect_near(loss.values(), expected.loss, GetParam().loss * epsilon, GetParam().ulps * cap * epsilon,
              "loss");
  // A slope is 1 - t^2, where t is rounded, as in PyTorch; that of the target is as exact as its logit.
  const std::vector<double> grads = grad.values();
  for (std::int64_t i = 0; i < input.rows * input.columns; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double t = std::tanh(input.logits[at] / cap), want = expected.grad[at];
    const double lost = i % input.columns == i / input.columns * 7 ? 0 : 1 / (1 - t * t);
    constexpr double smallest = std::numeric_limits<float>::min();
    const double flushed = std::abs(want) < smallest ? smallest : 0;
    ASSERT_NEAR(grads[at], want, (GetParam().grad + lost) * epsilon * std::abs(want) + flushed)
        << "grad[" << i << ']';
  }
}

// In f32, capped logits are known to an ulp of the cap at best: 2^-19, of which 16 epsilon of the exponential follow.
INSTANTIATE_TEST_SUITE_P(Ranges, SoftCap,
                         testing::Values(CapCase{"far_below_the_cap", 0.25, 2, 16},
                                         CapCase{"around_the_cap", 45, 4, 100},
                                         CapCase{"far_above_the_cap", 200, 4, 200},
                                         // Whose exponentials overflow without a maximum.
                                         CapCase{"a_large_cap", 300, 4, 800, 200, 0.5}),
                         [](const auto& which) { return which.param.name; });

/// What docs/accuracy.md says of 16 bits under a cap, which hold exponents in f16: also of the probability of a class that is
/// next to certain.
TEST_F(Accuracy, GradientsOf16BitsUnderACapAreOffByWhatF16RoundsOffExponents) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  Context context(options(Policy::lookup));
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const float cap : {15.f, 30.f, 50.f}) {
      LossInput input{
          .operation = {.reduction = Reduction::none, .softcap = cap}, .rows = 64, .columns = 300};
      Matrix x(context, dtype, input.rows, input.columns), grad(context, dtype, input.rows, input.columns);
      Matrix target(context, DType::i64, input.rows, 1), loss(context, DType::f32, input.rows, 1);
      std::vector<double> values = random_values(input.rows * input.columns, random);
      for (std::int64_t row = 0; row < input.rows; ++row) {
        values[row * input.columns + 7] = cap * (0.3 + static_cast<double>(row) / 64);
        input.target.push_back(row);
      }
      input.logits = x.set(values);
      target.set_indices(input.target);
      context.run(
          input.operation,
          {.logits = x.tensor(), .target = target.tensor(), .loss = loss.tensor(), .grad = grad.tensor()});
      context.synchronize();
      const double held = 0x1p-12 * (1.1 * cap + 1), rounded = dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
      expect_near(grad.values(), cross_entropy(input).grad, held + rounded, 1e-7,
                  fmt::format("grad of {} under {}", name(dtype), cap).c_str());
    }
}

}  // namespace
}  // namespace ce::test
