// Context::run() from end to end on one device, against f64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "tests/ce/fixture.hpp"
#include "tests/seed.hpp"

namespace ce::test {
namespace {

class RunSoftmax : public ContextTest, public testing::WithParamInterface<SoftmaxCase> {};
class RunCrossEntropy : public ContextTest, public testing::WithParamInterface<CrossEntropyCase> {};

TEST_P(RunSoftmax, IsRight) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Context context(options(Policy::lookup));
  SoftmaxCall call(context, GetParam(), seed);
  const Choice& choice = context.run(Softmax{}, call.tensors());
  EXPECT_EQ(choice.origin, Origin::fallback);
  EXPECT_NE(choice.config, "");
  EXPECT_EQ(choice.key.size(), 12);
  context.synchronize();
  call.expect_right();
}

TEST_P(RunCrossEntropy, IsRightTwiceAndAsAPlan) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Context context(options(Policy::lookup));
  CrossEntropyCall call(context, GetParam(), seed);
  context.run(call.operation(), call.tensors());
  context.check();
  call.expect_right();
  const std::vector<std::byte> first = call.result();

  // The workspace is as the first call found it, and the bits are the same.
  call.spoil();
  context.run(call.operation(), call.tensors());
  context.check();
  EXPECT_EQ(call.result(), first);

  call.spoil();
  const Plan plan = context.prepare(call.operation(), call.tensors());
  context.synchronize();
  EXPECT_NE(call.result(), first) << "prepare() launched";
  plan.run();
  context.check();
  EXPECT_EQ(call.result(), first);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, RunSoftmax,
    testing::Values(
        SoftmaxCase{.name = "plain"}, SoftmaxCase{.name = "in_place", .in_place = true},
        SoftmaxCase{.name = "one_row", .rows = 1}, SoftmaxCase{.name = "one_column", .columns = 1},
        SoftmaxCase{
            .name = "padded_differently", .dtype = f16, .input = {.padding = 8}, .output = {.padding = 24}},
        SoftmaxCase{.name = "bf16_shifted_by_one",
                    .dtype = bf16,
                    .columns = 101,
                    .input = {.padding = 1, .shift = 1},
                    .output = {.padding = 9, .shift = 1}},
        SoftmaxCase{.name = "bf16_in_place_shifted_by_one",
                    .dtype = bf16,
                    .columns = 333,
                    .in_place = true,
                    .input = {.shift = 1}},
        SoftmaxCase{.name = "mixed_alignment", .dtype = bf16, .input = {.shift = 1}},
        SoftmaxCase{.name = "wide", .rows = 3, .columns = 5000}),
    [](const auto& about) { return about.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Cases, RunCrossEntropy,
    testing::Values(CrossEntropyCase{.name = "mean"},
                    CrossEntropyCase{.name = "sum", .reduction = Reduction::sum},
                    CrossEntropyCase{.name = "none", .reduction = Reduction::none},
                    CrossEntropyCase{.name = "mean_without_gradient", .gradient = false},
                    CrossEntropyCase{.name = "none_without_gradient_i32",
                                     .target_dtype = DType::i32,
                                     .reduction = Reduction::none,
                                     .gradient = false},
                    CrossEntropyCase{.name = "in_place_bf16", .dtype = bf16, .in_place = true},
                    CrossEntropyCase{.name = "loss_in_bf16",
                                     .dtype = bf16,
                                     .target_dtype = DType::i32,
                                     .loss_dtype = bf16,
                                     .reduction = Reduction::none},
                    CrossEntropyCase{.name = "mean_in_bf16", .dtype = bf16, .loss_dtype = bf16},
                    CrossEntropyCase{.name = "padded",
                                     .dtype = f16,
                                     .reduction = Reduction::sum,
                                     .logits = {.padding = 8},
                                     .grad = {.padding = 16}},
                    CrossEntropyCase{.name = "mixed_alignment", .dtype = bf16, .grad = {.shift = 1}},
                    CrossEntropyCase{.name = "one_column", .columns = 1},
                    CrossEntropyCase{.name = "one_column_apart",
                                     .rows = 33,
                                     .columns = 1,
                                     .reduction = Reduction::none,
                                     .logits = {.padding = 31},
                                     .grad = {.padding = 31}},
                    CrossEntropyCase{.name = "two_columns_apart",
                                     .rows = 33,
                                     .columns = 2,
                                     .reduction = Reduction::none,
                                     .in_place = true,
                                     .logits = {.padding = 30}},
                    CrossEntropyCase{.name = "one_row", .rows = 1, .columns = 1000},
                    // More rows than one block of the final sum adds up.
                    CrossEntropyCase{.name = "many_rows", .rows = 20000, .columns = 3, .gradient = false}),
    [](const auto& about) { return about.param.name; });

class RunEdges : public ContextTest {};

TEST_F(RunEdges, NoRows) {
  Context context(options(Policy::lookup));
  const Tensor nothing{.data = nullptr, .dtype = DType::f32, .rows = 0, .columns = 100};
  const Tensor no_targets{.data = nullptr, .dtype = DType::i64, .rows = 0};
  const Choice& choice = context.run(Softmax{}, {.input = nothing, .output = nothing});
  for (const auto& [outer, inner] : {std::pair{0, 4}, {3, 0}, {0, 0}}) {
    const Tensor classes_second = class_dimension_second(nullptr, DType::f32, outer, 100, inner);
    EXPECT_EQ(context.run(Softmax{}, {.input = classes_second, .output = classes_second}).config, "");
  }
  EXPECT_EQ(choice.config, "");
  EXPECT_NE(choice.reason, "");

  for (const DType loss_dtype : {DType::f32, bf16}) {
    Tensor logits = nothing;
    logits.dtype = bf16;
    Matrix mean(context, loss_dtype, 1, 1), sum(context, loss_dtype, 1, 1);
    mean.set({3});
    context.run(CrossEntropy{}, {.logits = logits, .target = no_targets, .loss = mean.tensor(), .grad = {}});
    context.run(CrossEntropy{.reduction = Reduction::sum},
                {.logits = logits, .target = no_targets, .loss = sum.tensor(), .grad = logits});
    context.check();
    EXPECT_TRUE(std::isnan(mean.values().at(0)));
    EXPECT_EQ(sum.values().at(0), 0);
  }
  context.run(CrossEntropy{.reduction = Reduction::none},
              {.logits = nothing, .target = no_targets, .loss = Tensor{.rows = 0}, .grad = {}});
  const Plan plan = context.prepare(Softmax{}, {.input = nothing, .output = nothing});
  plan.run();
  EXPECT_EQ(plan.choice().config, "");
  EXPECT_EQ(context.compiled(), 0);
}

TEST_F(RunEdges, AllRowsIgnored) {
  Context context(options(Policy::lookup));
  Matrix logits(context, DType::f32, 5, 20), target(context, DType::i64, 5, 1),
      loss(context, DType::f32, 1, 1), grad(context, DType::f32, 5, 20);
  logits.set(std::vector<double>(100, 1));
  target.set_indices({-100, -100, -100, -100, -100});
  const CrossEntropy::Tensors tensors{
      .logits = logits.tensor(), .target = target.tensor(), .loss = loss.tensor(), .grad = grad.tensor()};
  context.run(CrossEntropy{}, tensors);
  context.check();
  EXPECT_TRUE(std::isnan(loss.values().at(0))) << loss.values().at(0);
  EXPECT_THAT(grad.values(), testing::Each(0));
  context.run(CrossEntropy{.reduction = Reduction::sum}, tensors);
  context.check();
  EXPECT_EQ(loss.values().at(0), 0);
}

TEST_F(RunEdges, TargetsOutOfRangeAreCountedOnce) {
  Context context(options(Policy::lookup));
  Matrix logits(context, DType::f32, 6, 20), target(context, DType::i64, 6, 1),
      loss(context, DType::f32, 6, 1), grad(context, DType::f32, 6, 20);
  logits.set(std::vector<double>(120, 1));
  const CrossEntropy operation{.reduction = Reduction::none};
  const CrossEntropy::Tensors tensors{
      .logits = logits.tensor(), .target = target.tensor(), .loss = loss.tensor(), .grad = grad.tensor()};
  target.set_indices({3, -100, 20, 19, -1, std::int64_t{1} << 40});
  context.run(operation, tensors);
  context.run(operation, tensors);
  try {
    context.check();
    ADD_FAILURE() << "nothing was found";
  } catch (const TargetOutOfRange& error) {
    EXPECT_EQ(error.count(), 6) << "three rows, twice";
    EXPECT_EQ(error.first_row(), 2);
    EXPECT_EQ(error.first_target(), 20);
    EXPECT_EQ(error.operation(), "CrossEntropy");
    EXPECT_THAT(error.what(), testing::HasSubstr("row 2 with target 20"));
  }
  EXPECT_NO_THROW(context.check()) << "the status is clear after it was told";
  const std::vector<double> losses = loss.values(), gradients = grad.values();
  for (const int row : {2, 4, 5}) {
    EXPECT_TRUE(std::isnan(losses.at(row)));
    EXPECT_TRUE(std::isnan(gradients.at(row * 20)));
  }
  EXPECT_EQ(losses.at(1), 0);
  for (const int row : {0, 3}) EXPECT_NEAR(losses.at(row), std::log(20.), 1e-5);

  target.set_indices({3, -100, 0, 19, -100, -(std::int64_t{1} << 40)});
  context.run(operation, tensors);
  try {
    context.check();
    ADD_FAILURE() << "nothing was found";
  } catch (const TargetOutOfRange& error) {
    EXPECT_EQ(error.first_row(), 5);
    EXPECT_EQ(error.first_target(), -(1 << 23)) << "the nearest that is told";
  }

  target.set_indices({3, -100, 0, 19, -100, 1});
  context.run(operation, tensors);
  EXPECT_NO_THROW(context.check()) << "ignored rows are no error";
}

}  // namespace
}  // namespace ce::test
