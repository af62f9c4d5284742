// Cross entropy with its options, alone and together, from end to end on one device, against f64; and the
// gradient from the logsumexp that it saves.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "tests/ce/fixture.hpp"
#include "tests/ce/formulas.hpp"
#include "tests/seed.hpp"

namespace ce::test {
namespace {

enum class Upstream { none, scalar, rows };

struct OptionsCase {
  std::string name;
  CrossEntropy operation;
  DType dtype = DType::f32, target_dtype = DType::i64, loss_dtype = DType::f32;
  std::int64_t rows = 6, columns = 40;
  bool probabilities = false, weights = false, in_place = false, all_outputs = false, bad_target = false;
  Upstream upstream = Upstream::none;
  std::optional<Tensor> logits = std::nullopt;  ///< view of it, if not dense
  std::optional<Tensor> grad = std::nullopt;
};
void PrintTo(const OptionsCase& which, std::ostream* out) { *out << which.name; }

std::vector<double> uniform_values(std::int64_t count, std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(0.25, 2.);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& x : values) x = uniform(random);
  return values;
}

/// The tensors of a case with random values, and what must come out of them.
class OptionsCall {
 public:
  OptionsCall(Context& context, const OptionsCase& which, std::uint64_t seed)
      : case_(which),
        logits_(context, which.logits.value_or(dense())),
        target_(context, which.probabilities ? which.dtype : which.target_dtype, which.rows,
                which.probabilities ? which.columns : 1),
        weight_(context, which.dtype, which.columns, 1),
        upstream_(context, which.loss_dtype, which.upstream == Upstream::rows ? which.rows : 1, 1),
        loss_(context, which.loss_dtype, losses(), 1),
        z_loss_(context, which.loss_dtype, losses(), 1),
        grad_(context, which.grad.value_or(dense())),
        lse_(context, DType::f32, which.rows, 1),
        argmax_(context, DType::i64, which.rows, 1),
        hit_(context, DType::u8, which.rows, 1) {
    std::mt19937_64 random(seed);
    input_.operation = which.operation;
    input_.rows = which.rows;
    input_.columns = which.columns;
    input_.logits = logits_.set(random_values(which.rows * which.columns, random));
    if (which.probabilities) {
      input_.probabilities = target_.set(uniform_values(which.rows * which.columns, random));
    } else {
      for (std::int64_t row = 0; row < which.rows; ++row)
        input_.target.push_back(std::uniform_int_distribution<std::int64_t>(0, which.columns - 1)(random));
      input_.target.at(1) = which.operation.ignore_index;
      if (which.bad_target) input_.target.at(2) = which.columns;
      // One row whose target is its largest logit.
      input_.target.back() = cross_entropy(input_).argmax.back();
      target_.set_indices(input_.target);
    }
    if (which.weights) input_.weight = weight_.set(uniform_values(which.columns, random));
    if (which.upstream != Upstream::none)
      input_.upstream = upstream_.set(uniform_values(upstream_.tensor().rows, random));
    expected_ = cross_entropy(input_);
  }

  [[nodiscard]] CrossEntropy::Tensors tensors() const {
    CrossEntropy::Tensors all{.logits = logits_.tensor(),
                              .target = target_.tensor(),
                              .loss = loss_.tensor(),
                              .grad = case_.in_place ? logits_.tensor() : grad_.tensor(),
                              .lse = lse_.tensor()};
    if (case_.weights) all.weight = weight_.tensor();
    if (case_.upstream != Upstream::none) all.upstream = upstream_.tensor();
    if (!case_.all_outputs) return all;
    all.z_loss_out = z_loss_.tensor();
    all.argmax = argmax_.tensor();
    if (!case_.probabilities) all.hit = hit_.tensor();
    return all;
  }

  /// With the same options and tensors, and the lse that the forward call has written.
  void run_backward(Context& context) {
    const CrossEntropy& same = case_.operation;
    const CrossEntropy::Tensors all = tensors();
    context.run(CrossEntropyBackward{.ignore_index = same.ignore_index,
                                     .reduction = same.reduction,
                                     .label_smoothing = same.label_smoothing,
                                     .z_loss = same.z_loss,
                                     .softcap = same.softcap,
                                     .logit_scale = same.logit_scale},
                {.logits = all.logits,
                 .target = all.target,
                 .weight = all.weight,
                 .lse = all.lse,
                 .upstream = all.upstream,
                 .grad = all.grad});
  }

  void expect_gradient() const {
    const Matrix& grad = case_.in_place ? logits_ : grad_;
    // Under a cap 16 bits hold exponents of up to 0.6 cap, and slopes, in f16 (templates/operations/logits.cuh). So much
    // probabilities may be off, which are larger than their gradients by what smoothing takes away.
    const float cap = case_.operation.softcap;
    const double held = cap > 0 && case_.dtype != DType::f32 ? 0x1p-12 * (0.6 * cap + 1) : 0.;
    expect_near(grad.values(), expected_.grad, 5e-5 + rounding(case_.dtype) + held,
                4e-6 + held * largest_smoothing(), "grad");
    EXPECT_TRUE(grad.frame_is_intact()) << "written beside the rows";
    if (!case_.in_place) {
      EXPECT_EQ(logits_.values(), input_.logits) << "the logits changed";
    }
  }
  void expect_right() const {
    const double relative = 1e-5 + rounding(case_.loss_dtype);
    expect_near(loss_.values(), expected_.loss, relative, 1e-5, "loss");
    expect_near(lse_.values(), expected_.lse, 1e-5, 1e-5, "lse");
    EXPECT_TRUE(loss_.frame_is_intact() && lse_.frame_is_intact());
    expect_gradient();
    if (!case_.all_outputs) return;
    expect_near(z_loss_.values(), expected_.z_loss, relative, 1e-5, "z_loss");
    EXPECT_EQ(argmax_.indices(), expected_.argmax);
    if (!case_.probabilities) {
      EXPECT_EQ(hit_.indices(), expected_.hit);
    }
    EXPECT_TRUE(z_loss_.frame_is_intact() && argmax_.frame_is_intact() && hit_.frame_is_intact());
  }
  /// Sets the logits back to their own, and the gradient to other values.
  void spoil() {
    if (!case_.in_place) grad_.set(std::vector<double>(input_.logits.size(), 77));
    logits_.set(input_.logits);
  }

 private:
  /// What smoothing takes from a class, with the weights and the upstream gradient that cases have.
  [[nodiscard]] double largest_smoothing() const {
    return case_.operation.label_smoothing / static_cast<double>(case_.columns) * 2. * 2.;
  }
  [[nodiscard]] Tensor dense() const {
    return {.dtype = case_.dtype, .rows = case_.rows, .columns = case_.columns};
  }
  [[nodiscard]] std::int64_t losses() const {
    return case_.operation.reduction == Reduction::none ? case_.rows : 1;
  }
  OptionsCase case_;
  Matrix logits_, target_, weight_, upstream_, loss_, z_loss_, grad_, lse_, argmax_, hit_;
  LossInput input_;
  LossOutput expected_;
};

class RunOptions : public ContextTest, public testing::WithParamInterface<OptionsCase> {};

TEST_P(RunOptions, AreRightForwardAndBackward) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Context context(options(Policy::lookup));
  OptionsCall call(context, GetParam(), seed);
  const auto check = [&context] {
    if (!GetParam().bad_target)
      context.check();
    else
      EXPECT_THROW(context.check(), TargetOutOfRange);
  };
  context.run(GetParam().operation, call.tensors());
  check();
  call.expect_right();
  call.spoil();
  call.run_backward(context);
  check();
  call.expect_gradient();
}

const Tensor one_class_of_each{
    .dtype = DType::f32, .rows = 6, .columns = 1, .row_stride = 1, .column_stride = 99};

INSTANTIATE_TEST_SUITE_P(
    Cases, RunOptions,
    testing::Values(OptionsCase{.name = "smoothing", .operation = {.label_smoothing = 0.1f}},
                    OptionsCase{.name = "smoothing_and_weights_mean",
                                .operation = {.ignore_index = 3, .label_smoothing = 0.2f},
                                .weights = true,
                                .upstream = Upstream::scalar},
                    OptionsCase{.name = "z_loss_mean_f16",
                                .operation = {.z_loss = 0.01f},
                                .dtype = f16,
                                .target_dtype = DType::i32,
                                .loss_dtype = f16,
                                .weights = true,
                                .all_outputs = true},
                    OptionsCase{
                        .name = "cap_and_scale_sum",
                        .operation = {.reduction = Reduction::sum, .softcap = 4.f, .logit_scale = 1.5f}},
                    OptionsCase{.name = "all_none_bf16_in_place",
                                .operation = {.reduction = Reduction::none,
                                              .label_smoothing = 0.1f,
                                              .z_loss = 0.05f,
                                              .softcap = 5.f,
                                              .logit_scale = 0.5f},
                                .dtype = bf16,
                                .weights = true,
                                .in_place = true,
                                .all_outputs = true,
                                .bad_target = true,
                                .upstream = Upstream::rows},
                    OptionsCase{.name = "probabilities_mean",
                                .operation = {.label_smoothing = 0.3f, .z_loss = 0.01f},
                                .probabilities = true,
                                .weights = true,
                                .all_outputs = true,
                                .upstream = Upstream::scalar},
                    OptionsCase{.name = "probabilities_none_strided",
                                .operation = {.reduction = Reduction::none},
                                .probabilities = true,
                                .upstream = Upstream::rows,
                                .logits = class_dimension_second(nullptr, DType::f32, 2, 40, 3)},
                    OptionsCase{.name = "classes_second",
                                .operation = {},
                                .dtype = bf16,
                                .logits = class_dimension_second(nullptr, bf16, 3, 40, 2),
                                .grad = class_dimension_second(nullptr, bf16, 3, 40, 2)},
                    OptionsCase{.name = "batched_in_place",
                                .operation = {.reduction = Reduction::sum, .z_loss = 0.01f},
                                .dtype = f16,
                                .in_place = true,
                                .logits = batched(nullptr, f16, 2, 3, 40, 4 * 40)},
                    OptionsCase{.name = "one_column",
                                .operation = {.label_smoothing = 0.1f, .z_loss = 0.1f},
                                .columns = 1,
                                .all_outputs = true,
                                .logits = one_class_of_each}),
    [](const auto& about) { return about.param.name; });

class RunOutputs : public ContextTest {};

TEST_F(RunOutputs, LargestLogits) {
  Context context(options(Policy::lookup));
  constexpr double inf = INFINITY;
  Matrix logits(context, DType::f32, 6, 4), target(context, DType::i64, 6, 1),
      loss(context, DType::f32, 6, 1), argmax(context, DType::i64, 6, 1), hit(context, DType::u8, 6, 1);
  logits.set({1,    3,    3,    2,     // the first of two
              -inf, -inf, -inf, -inf,  // none
              1,    NAN,  2,    NAN,   // NaN is the largest
              inf,  0,    inf,  0,     //
              -inf, NAN,  -inf, NAN,   //
              inf,  -inf, NAN,  inf});
  target.set_indices({2, 0, 2, 0, -100, 2});
  context.run(CrossEntropy{.reduction = Reduction::none}, {.logits = logits.tensor(),
                                                           .target = target.tensor(),
                                                           .loss = loss.tensor(),
                                                           .argmax = argmax.tensor(),
                                                           .hit = hit.tensor()});
  context.check();
  EXPECT_THAT(argmax.indices(), testing::ElementsAre(1, 0, 1, 0, 1, 2));
  EXPECT_THAT(hit.indices(), testing::ElementsAre(0, 1, 0, 1, 0, 1));
}

/// torch.finfo(torch.bfloat16).min is a usual mask. Times log2(e) it is beyond f32.
TEST_F(RunOutputs, MaskedWithTheLowestNumber) {
  Context context(options(Policy::lookup));
  constexpr std::int64_t rows = 2, columns = 40, masked = 30;
  constexpr double lowest = -0x1.fep127;
  Matrix logits(context, bf16, rows, columns), probabilities(context, bf16, rows, columns),
      weight(context, DType::f32, columns, 1), target(context, DType::i64, rows, 1),
      loss(context, DType::f32, rows, 1), grad(context, bf16, rows, columns);
  LossInput input{.operation = {.reduction = Reduction::none}, .rows = rows, .columns = columns};
  // The second row is masked but for one, whose probability is 1.
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const bool last = i == rows * columns - 1, is_masked = (i % columns < masked || i > columns) && !last;
    input.logits.push_back(is_masked ? lowest : 1 + static_cast<double>(i % 3));
    input.probabilities.push_back(is_masked ? 0. : last ? 1. : 0.125);
  }
  input.logits = logits.set(input.logits);
  input.probabilities = probabilities.set(input.probabilities);
  SCOPED_TRACE(context
                   .run(input.operation, {.logits = logits.tensor(),
                                          .target = probabilities.tensor(),
                                          .loss = loss.tensor(),
                                          .grad = grad.tensor()})
                   .config);
  context.synchronize();
  LossOutput expected = cross_entropy(input);
  expect_near(loss.values(), expected.loss, 1e-5, 1e-5, "loss with probabilities");
  expect_near(grad.values(), expected.grad, 1e-5 + rounding(bf16), 1e-6, "grad with probabilities");

  input.operation.label_smoothing = 0.1f;
  input.probabilities.clear();
  input.target = {columns - 1, columns - 1};
  target.set_indices(input.target);
  for (std::int64_t i = 0; i < columns; ++i) input.weight.push_back(i < columns - 1 ? 0. : 2.);
  input.weight = weight.set(input.weight);
  context.run(input.operation, {.logits = logits.tensor(),
                                .target = target.tensor(),
                                .weight = weight.tensor(),
                                .loss = loss.tensor(),
                                .grad = grad.tensor()});
  context.synchronize();
  expected = cross_entropy(input);
  expect_near(loss.values(), expected.loss, 1e-5, 1e-5, "loss with smoothing and weights");
  expect_near(grad.values(), expected.grad, 1e-5 + rounding(bf16), 1e-6, "grad with smoothing and weights");
}

/// What does not count adds nothing, however far it is from the maximum.
TEST_F(RunOutputs, MaskedClassesUnderSmoothingWeightsAndProbabilities) {
  Context context(options(Policy::lookup));
  constexpr std::int64_t rows = 3, columns = 64;
  constexpr double lowest = -0x1.fffffep127;
  Matrix logits(context, DType::f32, rows, columns), target(context, DType::i64, rows, 1),
      probabilities(context, DType::f32, rows, columns), weight(context, DType::f32, columns, 1),
      loss(context, DType::f32, rows, 1);
  std::vector<double> values, shares, weights;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const bool counts = i % columns < 3;
    values.push_back(counts ? static_cast<double>(i % columns + 1) : i < columns ? lowest : -INFINITY);
    shares.push_back(counts ? 0.25 + 0.25 * static_cast<double>(i % columns == 1) : 0.);
  }
  for (std::int64_t i = 0; i < columns; ++i) weights.push_back(i < 3 ? 1. : 0.);
  logits.set(values);
  probabilities.set(shares);
  weight.set(weights);
  target.set_indices({1, 1, 1});
  const double log_sum = std::log(std::exp(2.) + std::exp(4.) + std::exp(6.)), of_target = log_sum - 4,
               of_all = 3 * log_sum - 12;

  // Of 61 classes beyond what f32 holds.
  context.run(CrossEntropy{.reduction = Reduction::none, .label_smoothing = 0.1f, .logit_scale = 2},
              {.logits = logits.tensor(), .target = target.tensor(), .loss = loss.tensor()});
  context.synchronize();
  for (const double value : loss.values()) EXPECT_GT(value, 6e37);

  context.run(CrossEntropy{.reduction = Reduction::none, .label_smoothing = 0.1f, .logit_scale = 2},
              {.logits = logits.tensor(),
               .target = target.tensor(),
               .weight = weight.tensor(),
               .loss = loss.tensor()});
  context.synchronize();
  for (const double value : loss.values()) EXPECT_NEAR(value, 0.9 * of_target + 0.1 / columns * of_all, 1e-5);

  context.run(CrossEntropy{.reduction = Reduction::none, .logit_scale = 2},
              {.logits = logits.tensor(), .target = probabilities.tensor(), .loss = loss.tensor()});
  context.synchronize();
  for (const double value : loss.values())
    EXPECT_NEAR(value, log_sum - (0.25 * 2 + 0.5 * 4 + 0.25 * 6), 1e-5);

  // A target that is masked, of a class without weight; and where smoothing leaves nothing of it.
  target.set_indices({5, 5, 5});
  context.run(CrossEntropy{.reduction = Reduction::none}, {.logits = logits.tensor(),
                                                           .target = target.tensor(),
                                                           .weight = weight.tensor(),
                                                           .loss = loss.tensor()});
  context.synchronize();
  for (const double value : loss.values()) EXPECT_EQ(value, 0);
  context.run(CrossEntropy{.reduction = Reduction::none, .label_smoothing = 1.f, .logit_scale = 2},
              {.logits = logits.tensor(),
               .target = target.tensor(),
               .weight = weight.tensor(),
               .loss = loss.tensor()});
  context.synchronize();
  for (const double value : loss.values()) EXPECT_NEAR(value, of_all / columns, 1e-5);
}

/// Of all that f32 holds: refused, or right.
TEST_F(RunOutputs, AnyAmountIsRefusedOrRight) {
  Context context(options(Policy::lookup));
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> exponent(-148, 128);
  constexpr std::int64_t rows = 2, columns = 4;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Matrix logits(context, dtype, rows, columns), target(context, DType::i64, rows, 1),
        loss(context, DType::f32, rows, 1);
    LossInput input{.rows = rows, .columns = columns, .target = {1, 2}};
    input.logits = logits.set({0, 0, 0, 0, 1, 2, 0.5, -1});
    target.set_indices(input.target);
    int taken = 0;
    for (int turn = 0; turn < 300; ++turn) {
      input.operation = {.reduction = Reduction::none,
                         .z_loss = std::exp2(exponent(random)),
                         .softcap = std::exp2(exponent(random)),
                         .logit_scale = std::exp2(exponent(random))};
      try {
        context.run(input.operation,
                    {.logits = logits.tensor(), .target = target.tensor(), .loss = loss.tensor()});
      } catch (const InvalidArgument&) {
        continue;
      }
      ++taken;
      context.synchronize();
      std::vector<double> expected = cross_entropy(input).loss;
      for (double& value : expected)
        if (value > static_cast<double>(std::numeric_limits<float>::max())) value = INFINITY;
      const std::string amounts = fmt::format("z_loss {}, softcap {}, logit_scale {}", input.operation.z_loss,
                                              input.operation.softcap, input.operation.logit_scale);
      const std::vector<double> got = loss.values();
      expect_near({got[0]}, {expected[0]}, 1e-4, 1e-5, amounts.c_str());  // of four logits of 0
      // A capped logit is known to an ulp of the cap.
      expect_near({got[1]}, {expected[1]}, 1e-4,
                  1e-5 + 0x1p-20 * static_cast<double>(input.operation.softcap), amounts.c_str());
    }
    EXPECT_GT(taken, 0);
  }
}

TEST_F(RunOutputs, NoRows) {
  Context context(options(Policy::lookup));
  Matrix mean(context, DType::f32, 1, 1), z_mean(context, DType::f32, 1, 1), sum(context, DType::f32, 1, 1),
      z_sum(context, DType::f32, 1, 1);
  z_mean.set({3});
  const Tensor nothing{.rows = 0, .columns = 100}, no_targets{.dtype = DType::i64};
  context.run(
      CrossEntropy{.z_loss = 1.f},
      {.logits = nothing, .target = no_targets, .loss = mean.tensor(), .z_loss_out = z_mean.tensor()});
  context.run(CrossEntropy{.reduction = Reduction::sum, .z_loss = 1.f},
              {.logits = nothing, .target = nothing, .loss = sum.tensor(), .z_loss_out = z_sum.tensor()});
  Matrix upstream(context, DType::f32, 1, 1), upstream_mean(context, DType::f32, 1, 1);
  context.run(CrossEntropy{}, {.logits = nothing,
                               .target = no_targets,
                               .upstream = upstream.tensor(),
                               .loss = upstream_mean.tensor(),
                               .grad = nothing});
  context.run(CrossEntropyBackward{},
              {.logits = nothing, .target = no_targets, .lse = Tensor{}, .grad = nothing});
  // A rank whose rows are all another's: its part of a mean over all of them.
  Matrix divisor(context, DType::f32, 1, 1), divided(context, DType::f32, 1, 1),
      z_divided(context, DType::f32, 1, 1);
  divisor.set({4});
  context.run(CrossEntropy{.z_loss = 1.f}, {.logits = nothing,
                                            .target = no_targets,
                                            .loss = divided.tensor(),
                                            .z_loss_out = z_divided.tensor(),
                                            .divisor = divisor.tensor()});
  context.synchronize();
  EXPECT_EQ(divided.values().at(0), 0);
  EXPECT_EQ(z_divided.values().at(0), 0);
  EXPECT_TRUE(std::isnan(upstream_mean.values().at(0)));
  EXPECT_TRUE(std::isnan(mean.values().at(0)) && std::isnan(z_mean.values().at(0)));
  EXPECT_EQ(sum.values().at(0), 0);
  EXPECT_EQ(z_sum.values().at(0), 0);
  EXPECT_EQ(context.compiled(), 0);
}

}  // namespace
}  // namespace ce::test
