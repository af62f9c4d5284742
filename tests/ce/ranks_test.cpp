// Ranks that share the classes, as threads of one process: the results of one rank with all classes, to the same bits on
// every rank, whatever the options and wherever the shards begin; and what calls that do not fit each other come to.
#include <gmock/gmock.h>

#include <numeric>

#include "tests/ce/ranks_fixture.hpp"

namespace ce::test {
namespace {

const std::vector<std::vector<std::int64_t>> splits{
    {0, 28, 56}, {0, 1, 11, 12, 27, 55, 56, 82}, {0, 28}, {0}};

TEST_F(Ranks, HaveTheResultsOfOneWithAllClasses) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  const std::vector<Given> calls{
      {.operation = {}},
      {.operation = {.reduction = Reduction::none, .label_smoothing = 0.1f}, .rows_upstream = true},
      {.operation = {.reduction = Reduction::sum, .z_loss = 1e-2f, .logit_scale = 0.7f}, .dtype = bf16},
      {.operation = {.label_smoothing = 0.2f, .softcap = 5}, .dtype = bf16, .weight = true},
      {.operation = {.softcap = 40}, .dtype = f16, .row_weight = true, .divisor = true},
      {.operation = {.label_smoothing = 0.1f, .z_loss = 1e-3f}, .probabilities = true, .weight = true},
      {.operation = {.reduction = Reduction::none}, .dtype = f16, .probabilities = true},
      {.operation = {.reduction = Reduction::none, .token_scaling = 1},
       .row_weight = true,
       .entropy_upstream = true},
      {.operation = {.label_smoothing = 0.1f}, .weight = true, .grad = false, .outputs = false},
      {.operation = {.softcap = 5}, .dtype = bf16, .outputs = false, .entropy_upstream = true},
      {.operation = {.reduction = Reduction::none, .label_smoothing = 0.1f, .logit_scale = 0.5f},
       .row_scale = true,
       .entropy_upstream = true},
      {.operation = {.reduction = Reduction::none, .softcap = 5}, .dtype = bf16, .row_scale = true},
  };
  // Each compiles kernels of its own.
  for (std::size_t call = 0; call < calls.size(); ++call)
    for (std::size_t split = 0; split < splits.size(); ++split) {
      if (!is_drawn(seed_, call, 3) || (split > 0 && call % 4 != split - 1)) continue;
      SCOPED_TRACE(fmt::format("call {} on {} ranks", call, splits[split].size()));
      expect_the_same(calls[call], splits[split]);
    }
}

/// 63 of a class each, and one of the rest.
TEST_F(Ranks, SixtyFourHaveTheResultsOfOneToo) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  std::vector<std::int64_t> first(64);
  std::iota(first.begin(), first.end(), 0);
  expect_the_same({.operation = {.label_smoothing = 0.1f, .z_loss = 1e-3f}, .weight = true}, first);
}

/// Padding alone: of the last rank, and of one between others.
TEST_F(Ranks, SomeWithoutAClassChangeNothing) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  expect_the_same({.operation = {.softcap = 5}}, {0, 28, 83});
  // Of logits far below 0, too: the largest of none is below them.
  expect_the_same({.operation = {.label_smoothing = 0.1f}, .probabilities = true, .shift = -200},
                  {0, 28, 28});
}

TEST_F(Ranks, WhoseCallsDoNotFitEachOtherAllHearOfIt) {
  const auto messages = [&](const std::vector<Given>& calls, const std::vector<std::int64_t>& first,
                            std::int64_t all_classes) {
    ThreadRanks& group = groups_.emplace_back(2);
    std::vector<std::string> heard(2);
    for_each_rank(2, [&](std::size_t own) {
      try {
        run(*context_, calls[own], first[own], first[own] + 28,
            Shard{.communicator = group.communicator(static_cast<int>(own)),
                  .first_class = first[own],
                  .classes = all_classes});
      } catch (const Error& error) {
        heard[own] = error.what();
      }
    });
    EXPECT_EQ(heard[0], heard[1]);
    return heard[0];
  };
  using testing::HasSubstr;
  EXPECT_THAT(
      messages({{}, {.operation = {.label_smoothing = 0.1f}}}, {0, 28}, 56),
      testing::AllOf(HasSubstr("label_smoothing"), HasSubstr("0.1 on rank 1"), HasSubstr("0, as on rank 0")));
  EXPECT_THAT(messages({{}, {.dtype = bf16}}, {0, 28}, 56),
              testing::AllOf(HasSubstr("logits.dtype"), HasSubstr("bf16 on rank 1")));
  EXPECT_THAT(messages({{}, {.row_scale = true}}, {0, 28}, 56), HasSubstr("row_scale is set on rank 1"));
  EXPECT_THAT(messages({{}, {.weight = true, .divisor = true}}, {0, 28}, 56),
              HasSubstr("weight, row_weight and divisor is 5 on rank 1"));
  EXPECT_THAT(messages({{}, {}}, {0, 27}, 56),
              testing::AllOf(HasSubstr("first_class"), HasSubstr("27 on rank 1")));
  EXPECT_THAT(messages({{}, {}}, {0, 28}, 60), testing::AllOf(HasSubstr("classes"), HasSubstr("56")));
}

/// Where every call is compared, a later one that differs is an error of both as well, and the next that fits works.
TEST_F(Ranks, WhoseLaterCallsDoNotFitEachOtherAllHearOfItWhereTheyAreCompared) {
  classes = 56, boundary = 28, next_boundary = 29;
  ThreadRanks& group = groups_.emplace_back(2);
  const auto messages = [&](const Given& of_0, const Given& of_1) {
    std::vector<std::string> heard(2);
    for_each_rank(2, [&](std::size_t own) {
      const auto rank = static_cast<int>(own);
      try {
        run(*context_, rank == 0 ? of_0 : of_1, rank * 28, rank * 28 + 28,
            Shard{.communicator = group.communicator(rank),
                  .first_class = rank * 28,
                  .classes = classes,
                  .compare_every_call = true});
      } catch (const Error& error) {
        heard[own] = error.what();
      }
    });
    EXPECT_EQ(heard[0], heard[1]);
    return heard[0];
  };
  const Given plain{.outputs = false}, smoothed{.operation = {.label_smoothing = 0.1f}, .outputs = false};
  EXPECT_EQ(messages(plain, plain), "");
  EXPECT_EQ(group.gathers(), 3);
  EXPECT_THAT(messages(plain, smoothed), testing::HasSubstr("label_smoothing is 0.1 on rank 1"));
  EXPECT_EQ(messages(plain, plain), "");
  EXPECT_EQ(group.gathers(), 6) << "one for the call that failed, and two";
}

TEST_F(Ranks, OneOfWhichIsMissingFailInsteadOfWaiting) {
  ThreadRanks group(2);
  group.patience = std::chrono::milliseconds(50);
  try {
    run(*context_, {}, 0, 28, Shard{.communicator = group.communicator(0), .first_class = 0, .classes = 56});
    FAIL() << "there is no rank 1";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("all-gather of rank 0"),
                                             testing::HasSubstr("a rank is missing")));
  }
}

TEST_F(Ranks, RefuseWhatMeansNothing) {
  ThreadRanks group(1);
  const auto message = [&](const Shard& shard) {
    try {
      run(*context_, {}, 0, 28, shard);
    } catch (const InvalidArgument& error) {
      return error.argument();
    }
    return std::string("nothing");
  };
  Communicator lonely = group.communicator(0);
  EXPECT_EQ(message({.communicator = lonely, .first_class = 0, .classes = 20}), "classes");
  EXPECT_EQ(message({.communicator = {}, .first_class = 0, .classes = 28}), "communicator.all_gather");
  Matrix logits(*context_, DType::f32, 2, 28), rows(*context_, DType::f32, 2, 1),
      target(*context_, DType::i64, 2, 1), loss(*context_, DType::f32, 1, 1);
  const CrossEntropy::Tensors plain{
      .logits = logits.tensor(), .target = target.tensor(), .loss = loss.tensor()};
  CrossEntropy::Tensors given = plain, low = plain;
  given.given_lse = low.lse_low = rows.tensor();
  for (const auto& [argument, tensors] :
       {std::pair("given_lse.data", &given), std::pair("lse_low.data", &low)})
    try {
      context_->run(CrossEntropy{}, *tensors, Shard{.communicator = lonely, .first_class = 0, .classes = 28});
      ADD_FAILURE() << argument << " was taken";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), argument);
      EXPECT_EQ(error.operation(), "CrossEntropy");
    }
  try {
    context_->run(CrossEntropy{.softcap = -1}, plain,
                  Shard{.communicator = lonely, .first_class = 0, .classes = 28});
    ADD_FAILURE() << "softcap was taken";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(std::string(error.what()),
              "CrossEntropy: softcap is -1; expected 0 (no cap), or 2^-60 to 2^60");
  }
  lonely.rank = 1;
  EXPECT_EQ(message({.communicator = lonely, .first_class = 0, .classes = 28}), "communicator.rank");
}

TEST_F(Ranks, WithATargetThatIsNoClassOfAnySayWhich) {
  ThreadRanks group(1);
  Matrix logits(*context_, DType::f32, 2, 28), target(*context_, DType::i64, 2, 1),
      loss(*context_, DType::f32, 1, 1);
  logits.set(std::vector<double>(56, 1.));
  target.set_indices({3, 28});
  context_->run(CrossEntropy{}, {.logits = logits.tensor(), .target = target.tensor(), .loss = loss.tensor()},
                Shard{.communicator = group.communicator(0), .first_class = 0, .classes = 28});
  EXPECT_TRUE(std::isnan(loss.values().front()));
  try {
    context_->check();
    FAIL() << "28 is no class";
  } catch (const TargetOutOfRange& error) {
    EXPECT_EQ(error.count(), 1);
  }
}

}  // namespace
}  // namespace ce::test
