// Log-probabilities and entropies of rows, and gradients of all three results of a row in one pass, from end to end on one
// device, against f64.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/ce/fixture.hpp"
#include "tests/ce/formulas.hpp"
#include "tests/seed.hpp"

namespace ce::test {
namespace {

class Entropy : public ContextTest, public testing::WithParamInterface<DType> {
 protected:
  static constexpr std::int64_t rows = 5, columns = 67;

  /// log softmax of the logits times the scale of their row.
  static std::vector<double> logarithms(const std::vector<double>& logits,
                                        const std::vector<double>& scales) {
    std::vector<double> all(logits.size());
    for (std::int64_t row = 0; row < rows; ++row) {
      const double scale = scales.at(row);
      double sum = 0;
      for (std::int64_t i = 0; i < columns; ++i) sum += std::exp(scale * logits.at(row * columns + i));
      for (std::int64_t i = 0; i < columns; ++i)
        all.at(row * columns + i) = scale * logits.at(row * columns + i) - std::log(sum);
    }
    return all;
  }
};

TEST_P(Entropy, AndLogProbabilityWithTheirGradientsForwardAndBackward) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Context context(options(Policy::lookup));
  const DType dtype = GetParam();
  Matrix logits(context, dtype, rows, columns), grad(context, dtype, rows, columns);
  Matrix target(context, DType::i64, rows, 1), loss(context, DType::f32, rows, 1),
      lse(context, DType::f32, rows, 1), logprob(context, DType::f32, rows, 1),
      entropy(context, DType::f32, rows, 1), row_weight(context, DType::f32, rows, 1),
      row_scale(context, DType::f32, rows, 1), of_entropy(context, DType::f32, rows, 1),
      of_lse(context, DType::f32, rows, 1);
  const std::vector<double> x = logits.set(random_values(rows * columns, random));
  const std::vector<std::int64_t> classes{3, 66, -100, 0, 41};
  target.set_indices(classes);
  const std::vector<double> weights = row_weight.set({0.5, 2, 1, 0, 1.5}),
                            g = of_entropy.set({0.25, -1, 3, 0.5, 0}), h = of_lse.set({0, 0.5, 1, -1, 2});
  std::vector<double> scales = row_scale.set({1, 2, 0.5, 3, 0.25});
  for (double& scale : scales) scale *= 0.5;
  const CrossEntropy operation{.reduction = Reduction::none, .logit_scale = 0.5f, .token_scaling = 1};
  context.run(operation, {.logits = logits.tensor(),
                          .target = target.tensor(),
                          .loss = loss.tensor(),
                          .grad = grad.tensor(),
                          .lse = lse.tensor(),
                          .logprob = logprob.tensor(),
                          .entropy = entropy.tensor(),
                          .row_weight = row_weight.tensor(),
                          .row_scale = row_scale.tensor(),
                          .entropy_upstream = of_entropy.tensor(),
                          .lse_upstream = of_lse.tensor()});
  context.check();

  std::vector<double> losses, logprobs, entropies, gradient;
  const std::vector<double> logarithm = logarithms(x, scales);
  for (std::int64_t row = 0; row < rows; ++row) {
    const bool counts = classes[row] >= 0;
    double h_of_row = 0;
    for (std::int64_t i = 0; i < columns; ++i)
      h_of_row -= std::exp(logarithm.at(row * columns + i)) * logarithm.at(row * columns + i);
    const double own = counts ? logarithm.at(row * columns + classes[row]) : 0;
    const double factor = counts ? weights[row] * std::exp(own) : 0;
    losses.push_back(-factor * own);
    logprobs.push_back(own);
    entropies.push_back(counts ? h_of_row : 0);
    for (std::int64_t i = 0; i < columns; ++i) {
      const double log_p = logarithm.at(row * columns + i), p = std::exp(log_p);
      const double of_all = factor * (p - (i == classes[row])) + h[row] * p - g[row] * p * (log_p + h_of_row);
      gradient.push_back(counts ? scales[row] * of_all : 0);
    }
  }
  expect_near(loss.values(), losses, 2e-5, 1e-6, "loss");
  expect_near(logprob.values(), logprobs, 1e-5, 1e-6, "logprob");
  expect_near(entropy.values(), entropies, 1e-5, 1e-5, "entropy");
  expect_near(grad.values(), gradient, 5e-5 + rounding(dtype), 5e-6, "grad");

  grad.set(std::vector<double>(x.size(), 77));
  context.run(operation.backward(), {.logits = logits.tensor(),
                                     .target = target.tensor(),
                                     .lse = lse.tensor(),
                                     .grad = grad.tensor(),
                                     .logprob = logprob.tensor(),
                                     .entropy = entropy.tensor(),
                                     .row_weight = row_weight.tensor(),
                                     .row_scale = row_scale.tensor(),
                                     .entropy_upstream = of_entropy.tensor(),
                                     .lse_upstream = of_lse.tensor()});
  context.check();
  expect_near(grad.values(), gradient, 5e-5 + rounding(dtype), 5e-6, "grad of the backward");
}

/// Under a cap of at most 32 sums of exponentials need no maximum, but exponents as large as the cap have lost what an
/// entropy near 0 is. As exact as PyTorch in f32, which rounds logits under their cap, too.
TEST_P(Entropy, OfRowsThatAreNextToCertainUnderACap) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Context context(options(Policy::lookup));
  const DType dtype = GetParam();
  for (const float cap : {30.f, 32.f, 33.f})
    for (const bool with_gradient : {false, true}) {
      Matrix logits(context, dtype, rows, columns), grad(context, dtype, rows, columns),
          target(context, DType::i64, rows, 1), loss(context, DType::f32, rows, 1),
          entropy(context, DType::f32, rows, 1), of_entropy(context, DType::f32, rows, 1);
      std::vector<double> x = random_values(rows * columns, random);
      for (std::int64_t i = 0; i < columns; ++i) x[4 * columns + i] = 1000;  // all at the cap
      for (std::int64_t row = 0; row < 4; ++row) x[row * columns + 11 * row] = row == 3 ? 20 : 200;
      x = logits.set(x);
      for (double& value : x) value = static_cast<double>(cap) * std::tanh(value / static_cast<double>(cap));
      target.set_indices({0, 5, 22, 33, 66});
      of_entropy.set({1, -1, 2, 0.5, 1});
      CrossEntropy::Tensors tensors{.logits = logits.tensor(),
                                    .target = target.tensor(),
                                    .loss = loss.tensor(),
                                    .entropy = entropy.tensor()};
      if (with_gradient) {
        tensors.grad = grad.tensor();
        tensors.entropy_upstream = of_entropy.tensor();
      }
      context.run(CrossEntropy{.reduction = Reduction::none, .softcap = cap}, tensors);
      context.check();
      std::vector<double> exact;
      const std::vector<double> logarithm = logarithms(x, std::vector<double>(rows, 1));
      for (std::int64_t row = 0; row < rows; ++row) {
        double sum = 0;
        for (std::int64_t i = 0; i < columns; ++i)
          sum -= std::exp(logarithm.at(row * columns + i)) * logarithm.at(row * columns + i);
        exact.push_back(sum);
      }
      expect_near(entropy.values(), exact, 1e-4 + (dtype == DType::f32 ? 0. : 1e-3), 3e-7, "entropy");
    }
}

/// The sum of a row's exponentials is then 1, and not 1 but for the rounding of the maximum's exponent.
TEST_P(Entropy, OfRowsThatAreCertainIsZero) {
  Context context(options(Policy::lookup));
  Matrix logits(context, GetParam(), rows, columns), target(context, DType::i64, rows, 1),
      loss(context, DType::f32, rows, 1), entropy(context, DType::f32, rows, 1);
  std::vector<double> x(rows * columns, -20000);
  const double largest[] = {3.3, 77.7, 0.1, -5.7, 123.4};
  for (std::int64_t row = 0; row < rows; ++row) x[row * columns + 11 * row] = largest[row];
  logits.set(x);
  target.set_indices({0, 5, 22, 33, 66});  // of some rows the largest
  context.run(CrossEntropy{.reduction = Reduction::none, .logit_scale = 0.7f}, {.logits = logits.tensor(),
                                                                                .target = target.tensor(),
                                                                                .loss = loss.tensor(),
                                                                                .entropy = entropy.tensor()});
  context.check();
  EXPECT_THAT(entropy.values(), testing::Each(testing::DoubleNear(0, 1e-9)));
}

INSTANTIATE_TEST_SUITE_P(OfDTypes, Entropy, testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& test) { return std::string(name(test.param)); });

/// Of logits near 10^4, whose logsumexps f32 rounds by up to 5e-4.
TEST_F(ContextTest, TheGradientFromWhatTheForwardSavedIsAsExactAsThatOfOnePass) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Context context(options(Policy::lookup));
  constexpr std::int64_t rows = 24, columns = 1003;
  constexpr double offset = 10000;
  for (const float scale : {1.f, 0.7f}) {
    Matrix logits(context, DType::f32, rows, columns), grad(context, DType::f32, rows, columns),
        target(context, DType::i64, rows, 1), loss(context, DType::f32, rows, 1),
        lse(context, DType::f32, rows, 1), lse_low(context, DType::f32, rows, 1),
        logprob(context, DType::f32, rows, 1);
    std::vector<double> values = random_values(rows * columns, random);
    for (double& value : values) value = offset + 8 * value;
    values = logits.set(values);
    std::vector<std::int64_t> classes;
    for (std::int64_t row = 0; row < rows; ++row)
      classes.push_back(row % 9 == 4 ? -100 : static_cast<std::int64_t>(random() % columns));
    for (std::int64_t row = 0; row < rows; row += 3) {  // also targets whose probability is not next to 0
      const auto first = values.begin() + row * columns;
      classes[row] = std::max_element(first, first + columns) - first;
    }
    target.set_indices(classes);
    std::vector<double> exact, logsumexps;
    for (std::int64_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (std::int64_t i = 0; i < columns; ++i)
        sum += std::exp(scale * (values.at(row * columns + i) - offset));
      logsumexps.push_back(scale * offset + std::log(sum));
      for (std::int64_t i = 0; i < columns; ++i) {
        const double p = std::exp(scale * (values.at(row * columns + i) - offset)) / sum;
        exact.push_back(classes[row] < 0 ? 0 : scale * (p - (i == classes[row])));
      }
    }
    const auto error = [&] {
      context.check();  // reading memory waits for no stream
      const std::vector<double> found = grad.values();
      EXPECT_THAT(found, testing::Not(testing::Contains(testing::IsNan())));
      double largest = 0;
      for (std::size_t i = 0; i < found.size(); ++i)
        largest = std::max(largest, std::abs(found[i] - exact[i]));
      return largest;
    };
    const CrossEntropy operation{.reduction = Reduction::none, .logit_scale = scale};
    context.run(operation, {.logits = logits.tensor(),
                            .target = target.tensor(),
                            .loss = loss.tensor(),
                            .grad = grad.tensor(),
                            .lse = lse.tensor(),
                            .lse_low = lse_low.tensor(),
                            .logprob = logprob.tensor()});
    const double of_one_pass = error();
    std::vector<double> sums = lse.values();
    const std::vector<double> low = lse_low.values();
    for (std::size_t row = 0; row < sums.size(); ++row) sums[row] += low[row];
    expect_near(sums, logsumexps, 0, 2e-6, "lse and what it lost");
    const CrossEntropyBackward::Tensors saved{.logits = logits.tensor(),
                                              .target = target.tensor(),
                                              .lse = lse.tensor(),
                                              .grad = grad.tensor(),
                                              .logprob = logprob.tensor(),
                                              .lse_low = lse_low.tensor()};
    context.run(operation.backward(), saved);
    constexpr double of_an_exponential = 0x1p-23;  // of 1: a unit in the last place
    EXPECT_LE(error(), 2 * of_one_pass + of_an_exponential) << "scale " << scale;
    CrossEntropyBackward::Tensors without = saved;
    without.logprob = {};
    context.run(operation.backward(), without);
    EXPECT_LE(error(), 2 * of_one_pass + of_an_exponential) << "without log-probabilities, scale " << scale;
    without = saved;
    without.lse_low = {};
    context.run(operation.backward(), without);
    EXPECT_GE(error(), 20 * (of_one_pass + of_an_exponential))
        << "what shows that there is something to be lost";
  }
}

/// Of rows that are masked with the lowest number everywhere, f32 has neither lse / scale nor what lse lost; where the scale is
/// a power of two it has.
TEST_P(Entropy, OfALogsumexpThatSaysNothingTheGradientIsNaN) {
  Context context(options(Policy::lookup));
  const DType dtype = GetParam();
  const double lowest = dtype == DType::f16 ? -65504 : dtype == DType::bf16 ? -0x1.fep127 : -0x1.fffffep127;
  // With 0.7 lse / scale is the logit again: then it looks as if nothing were lost.
  for (const float scale : {0.5f, 0.3f, 0.7f}) {
    Matrix logits(context, dtype, rows, columns), grad(context, dtype, rows, columns),
        target(context, DType::i64, rows, 1), loss(context, DType::f32, rows, 1),
        lse(context, DType::f32, rows, 1), lse_low(context, DType::f32, rows, 1),
        entropy(context, DType::f32, rows, 1), logprob(context, DType::f32, rows, 1);
    logits.set(std::vector<double>(rows * columns, lowest));
    target.set_indices({0, 1, -100, 3, 4});
    const CrossEntropy operation{.reduction = Reduction::none, .logit_scale = scale};
    context.run(operation, {.logits = logits.tensor(),
                            .target = target.tensor(),
                            .loss = loss.tensor(),
                            .lse = lse.tensor(),
                            .lse_low = lse_low.tensor(),
                            .logprob = logprob.tensor(),
                            .entropy = entropy.tensor()});
    context.run(operation.backward(), {.logits = logits.tensor(),
                                       .target = target.tensor(),
                                       .lse = lse.tensor(),
                                       .grad = grad.tensor(),
                                       .logprob = logprob.tensor(),
                                       .lse_low = lse_low.tensor()});
    context.check();
    const std::vector<double> found = grad.values();
    const bool is_lost = dtype != DType::f16 && scale != 0.5f;
    for (std::int64_t row = 0; row < rows; ++row) {
      const double share = 1. / columns;
      EXPECT_NEAR(loss.values().at(row), row == 2 ? 0 : std::log(1. * columns), 1e-5);
      for (std::int64_t i = 0; i < columns; ++i) {
        const double got = found.at(row * columns + i), want = scale * (i == row ? share - 1 : share);
        if (row == 2)
          EXPECT_EQ(got, 0);
        else if (is_lost && i != row)  // that of the target follows from its log-probability
          EXPECT_TRUE(std::isnan(got)) << got;
        else
          EXPECT_NEAR(got, want, 1e-4 * scale + rounding(dtype) * std::abs(want)) << "scale " << scale;
      }
    }
  }
}

/// Losses of rows and of all, and the gradient from the same logsumexp.
TEST_F(ContextTest, AGivenLogsumexpGivesTheLosses) {
  Context context(options(Policy::lookup));
  constexpr std::int64_t rows = 200, columns = 3000;
  std::mt19937_64 random(1);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
      const std::int64_t losses = reduction == Reduction::none ? rows : 1;
      Matrix logits(context, dtype, rows, columns), target(context, DType::i64, rows, 1),
          loss(context, DType::f32, losses, 1), again(context, DType::f32, losses, 1),
          z_loss(context, DType::f32, losses, 1), z_again(context, DType::f32, losses, 1),
          lse(context, DType::f32, rows, 1), logprob(context, DType::f32, rows, 1),
          logprob_again(context, DType::f32, rows, 1);
      logits.set(random_values(rows * columns, random));
      std::vector<std::int64_t> classes;
      for (std::int64_t row = 0; row < rows; ++row)
        classes.push_back(row % 9 == 4 ? -100 : static_cast<std::int64_t>(random() % columns));
      target.set_indices(classes);
      const CrossEntropy operation{.reduction = reduction, .z_loss = 0.1f, .logit_scale = 0.5f};
      context.run(operation, {.logits = logits.tensor(),
                              .target = target.tensor(),
                              .loss = loss.tensor(),
                              .z_loss_out = z_loss.tensor(),
                              .lse = lse.tensor(),
                              .logprob = logprob.tensor()});
      context.run(operation, {.logits = logits.tensor(),
                              .target = target.tensor(),
                              .loss = again.tensor(),
                              .z_loss_out = z_again.tensor(),
                              .logprob = logprob_again.tensor(),
                              .given_lse = lse.tensor()});
      context.check();
      expect_near(again.values(), loss.values(), 1e-5, 2e-5, "loss");
      expect_near(z_again.values(), z_loss.values(), 1e-5, 1e-5, "z_loss");
      expect_near(logprob_again.values(), logprob.values(), 1e-5, 2e-6, "logprob");
    }
}

TEST_F(ContextTest, CrossEntropyWithEveryTensorAtOnce) {
  Context context(options(Policy::lookup));
  Matrix logits(context, DType::f32, 2, 8), grad(context, DType::f32, 2, 8),
      target(context, DType::i64, 2, 1), weight(context, DType::f32, 8, 1),
      upstream(context, DType::f32, 1, 1), loss(context, DType::f32, 1, 1), z_loss(context, DType::f32, 1, 1),
      argmax(context, DType::i64, 2, 1), hit(context, DType::u8, 2, 1), divisor(context, DType::f32, 1, 1);
  std::vector<Matrix> of_rows;
  for (int i = 0; i < 8; ++i) of_rows.emplace_back(context, DType::f32, 2, 1).set({1, 1});
  logits.set(std::vector<double>(16, 0));
  target.set_indices({1, 7});
  weight.set(std::vector<double>(8, 1));
  upstream.set({1});
  divisor.set({4});
  context.run(CrossEntropy{.z_loss = 0.5f}, {.logits = logits.tensor(),
                                             .target = target.tensor(),
                                             .weight = weight.tensor(),
                                             .upstream = upstream.tensor(),
                                             .loss = loss.tensor(),
                                             .grad = grad.tensor(),
                                             .z_loss_out = z_loss.tensor(),
                                             .lse = of_rows[0].tensor(),
                                             .lse_low = of_rows[7].tensor(),
                                             .argmax = argmax.tensor(),
                                             .hit = hit.tensor(),
                                             .logprob = of_rows[1].tensor(),
                                             .entropy = of_rows[2].tensor(),
                                             .row_weight = of_rows[3].tensor(),
                                             .row_scale = of_rows[6].tensor(),
                                             .divisor = divisor.tensor(),
                                             .entropy_upstream = of_rows[4].tensor(),
                                             .lse_upstream = of_rows[5].tensor()});
  context.synchronize();
  const double lse = std::log(8.);
  expect_near(loss.values(), {(2 * lse + lse * lse) / 4}, 1e-5, 1e-6, "loss");
  expect_near(of_rows[2].values(), {lse, lse}, 1e-5, 1e-6, "entropy");
}

/// The quotient of IEEE 754, with and without a gradient and a z-loss.
TEST_F(ContextTest, ADivisorMayBeAnything) {
  Context context(options(Policy::lookup));
  Matrix logits(context, DType::f32, 3, 8), grad(context, DType::f32, 3, 8),
      target(context, DType::i64, 3, 1), loss(context, DType::f32, 1, 1), divisor(context, DType::f32, 1, 1);
  logits.set(std::vector<double>(24, 0));
  target.set_indices({1, -100, 7});
  for (const float z_loss : {0.f, 0.5f})
    for (const bool with_gradient : {false, true})
      for (const double by : {4., -0.25, 0., std::nan(""), std::numeric_limits<double>::infinity()}) {
        divisor.set({by});
        CrossEntropy::Tensors tensors{.logits = logits.tensor(),
                                      .target = target.tensor(),
                                      .loss = loss.tensor(),
                                      .divisor = divisor.tensor()};
        if (with_gradient) tensors.grad = grad.tensor();
        context.run(CrossEntropy{.z_loss = z_loss}, tensors);
        context.synchronize();
        const double lse = std::log(8.), sum = 2 * (lse + static_cast<double>(z_loss) * lse * lse);
        SCOPED_TRACE(fmt::format("{} with z_loss {}, gradient {}", by, z_loss, with_gradient));
        const double got = loss.values().front();
        if (std::isnan(by))
          EXPECT_TRUE(std::isnan(got)) << got;
        else if (by == 0)
          EXPECT_EQ(got, std::numeric_limits<double>::infinity());
        else
          EXPECT_NEAR(got, sum / by, 1e-6 * std::abs(sum / by));
        if (!with_gradient) continue;
        const std::vector<double> gradient = grad.values();
        for (int i = 0; i < 24; ++i) {
          const double per_lse = 1 + 2 * static_cast<double>(z_loss) * lse,
                       want = (per_lse / 8 - (i == 1 || i == 23)) / by;
          if (i / 8 == 1)
            EXPECT_EQ(gradient[i], 0);
          else if (std::isfinite(want))
            EXPECT_NEAR(gradient[i], want, 1e-5 * std::abs(want) + 1e-7);
          else
            EXPECT_FALSE(std::isfinite(gradient[i]));
        }
      }
}

/// All but those of rows that are left out, and the argmax.
TEST_F(ContextTest, AScaleThatIsNoneMakesItsRowNaN) {
  Context context(options(Policy::lookup));
  constexpr std::int64_t rows = 7, columns = 70;
  std::mt19937_64 random(1);
  for (const float cap : {0.f, 30.f})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Matrix logits(context, dtype, rows, columns), grad(context, dtype, rows, columns),
          target(context, DType::i64, rows, 1), loss(context, DType::f32, rows, 1),
          lse(context, DType::f32, rows, 1), logprob(context, DType::f32, rows, 1),
          entropy(context, DType::f32, rows, 1), argmax(context, DType::i64, rows, 1),
          row_scale(context, DType::f32, rows, 1);
      std::vector<double> x = random_values(rows * columns, random);
      for (std::int64_t row = 0; row < rows; ++row) x[row * columns + 3 * row + 1] = 60;
      logits.set(x);
      target.set_indices({1, 2, 3, 4, -100, 6, 7});
      row_scale.set({1, 0, -2, NAN, 0, INFINITY, 0x1p61});
      context.run(CrossEntropy{.reduction = Reduction::none, .softcap = cap},
                  {.logits = logits.tensor(),
                   .target = target.tensor(),
                   .loss = loss.tensor(),
                   .grad = grad.tensor(),
                   .lse = lse.tensor(),
                   .argmax = argmax.tensor(),
                   .logprob = logprob.tensor(),
                   .entropy = entropy.tensor(),
                   .row_scale = row_scale.tensor()});
      context.synchronize();
      const std::vector<double> gradient = grad.values();
      for (std::int64_t row = 0; row < rows; ++row) {
        const bool is_nan = row != 0 && row != 4;
        for (const Matrix* of_rows : {&loss, &logprob, &entropy})
          EXPECT_EQ(std::isnan(of_rows->values().at(row)), is_nan) << "row " << row << ", cap " << cap;
        EXPECT_EQ(std::isnan(lse.values().at(row)), row != 0) << "row " << row;
        for (std::int64_t i = 0; i < columns; ++i)
          EXPECT_EQ(std::isnan(gradient.at(row * columns + i)), is_nan) << "row " << row << ", cap " << cap;
        EXPECT_EQ(argmax.indices().at(row), 3 * row + 1);
      }
    }
}

/// What f32 rounds off the logsumexp is all of the gradient of a row that is sure of its target.
TEST_F(ContextTest, ASavedLogProbabilityMakesTheBackwardAsExactAsOnePass) {
  Context context(options(Policy::lookup));
  Matrix logits(context, DType::f32, 1, 4), grad(context, DType::f32, 1, 4),
      target(context, DType::i64, 1, 1), loss(context, DType::f32, 1, 1), lse(context, DType::f32, 1, 1),
      logprob(context, DType::f32, 1, 1);
  logits.set({1024, 1000, 1000, 1000});
  target.set_indices({0});
  const CrossEntropy operation{.reduction = Reduction::none};
  context.run(operation, {.logits = logits.tensor(),
                          .target = target.tensor(),
                          .loss = loss.tensor(),
                          .lse = lse.tensor(),
                          .logprob = logprob.tensor()});
  const double others = 3 * std::exp(-24.) / (1 + 3 * std::exp(-24.));
  for (const bool saved : {false, true}) {
    CrossEntropyBackward::Tensors tensors{
        .logits = logits.tensor(), .target = target.tensor(), .lse = lse.tensor(), .grad = grad.tensor()};
    if (saved) tensors.logprob = logprob.tensor();
    context.run(operation.backward(), tensors);
    context.synchronize();
    EXPECT_NEAR(grad.values().front(), saved ? -others : 0, 1e-5 * others);
  }
}

}  // namespace
}  // namespace ce::test
