// LinearCrossEntropy where ranks share the classes: the numbers of one rank with all classes, whatever the options, the
// chunks and where the shards begin; and calls that do not fit each other.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <numeric>

#include "tests/ce/ranks_fixture.hpp"

namespace ce::test {
namespace {

/// What a call may have beside hidden states, weight, target, loss and gradients.
struct GivenLayer {
  std::string name;
  LinearCrossEntropy operation;
  DType dtype = DType::f32;
  bool bias = false, class_weight = false, probabilities = false, upstreams = false, grads = true;
  std::int64_t tokens = 9;
};

class LinearRanks : public Ranks {
 protected:
  static constexpr std::int64_t hidden = 12;

  struct Results {
    std::vector<double> loss, lse, argmax, hidden_grad, weight_grad, bias_grad;
  };

  /// The call on classes first to end.
  Results run(const GivenLayer& given, std::int64_t first, std::int64_t end, const Shard* shard) {
    Context& context = *context_;
    const std::int64_t columns = end - first, tokens = given.tokens;
    std::mt19937_64 random(seed_);
    const bool none = given.operation.cross_entropy.reduction == Reduction::none;
    Matrix x(context, given.dtype, tokens, hidden), w(context, given.dtype, columns, hidden),
        b(context, DType::f32, columns, 1), target(context, DType::i64, tokens, 1),
        p(context, given.dtype, tokens, columns), class_weight(context, DType::f32, classes, 1),
        upstream(context, DType::f32, none ? tokens : 1, 1), loss(context, DType::f32, none ? tokens : 1, 1),
        lse(context, DType::f32, tokens, 1), argmax(context, DType::i64, tokens, 1),
        of_x(context, given.dtype, tokens, hidden), of_w(context, given.dtype, columns, hidden),
        of_b(context, DType::f32, columns, 1);
    const auto slice = [&](const std::vector<double>& all, std::int64_t width) {
      return std::vector<double>(all.begin() + first * width, all.begin() + end * width);
    };
    x.set(random_values(tokens * hidden, random));
    w.set(slice(random_values(classes * hidden, random), hidden));
    b.set(slice(random_values(classes, random), 1));
    std::vector<double> positive = random_values(classes, random);
    for (double& one : positive) one = 0.5 + std::abs(one);
    class_weight.set(positive);
    std::vector<double> spread = random_values(tokens * classes, random), own;
    for (std::int64_t token = 0; token < tokens; ++token)
      for (std::int64_t c = first; c < end; ++c)
        own.push_back(std::abs(spread[static_cast<std::size_t>(token * classes + c)]) /
                      static_cast<double>(classes));
    p.set(own);
    std::vector<std::int64_t> targets{0,  classes - 1, -100, boundary - 1, boundary, next_boundary - 1,
                                      11, -100,        5};
    targets.resize(static_cast<std::size_t>(tokens), -100);
    if (tokens > 0) target.set_indices(targets);
    upstream.set(none ? std::vector<double>(static_cast<std::size_t>(tokens), 0.75)
                      : std::vector<double>{0.75});

    LinearCrossEntropy::Tensors tensors{.hidden = x.tensor(),
                                        .weight = w.tensor(),
                                        .target = given.probabilities ? p.tensor() : target.tensor(),
                                        .loss = loss.tensor(),
                                        .lse = lse.tensor(),
                                        .argmax = argmax.tensor()};
    if (given.bias) tensors.bias = b.tensor();
    if (given.class_weight) tensors.class_weight = class_weight.tensor();
    if (given.grads) {
      tensors.hidden_grad = of_x.tensor();
      tensors.weight_grad = of_w.tensor();
      if (given.bias) tensors.bias_grad = of_b.tensor();
      if (given.upstreams) tensors.upstream = upstream.tensor();
    }
    if (shard != nullptr)
      context.run(given.operation, tensors, *shard);
    else
      context.run(given.operation, tensors);
    context.synchronize();
    Results results{.loss = loss.values(),
                    .lse = lse.values(),
                    .argmax = {},
                    .hidden_grad = {},
                    .weight_grad = {},
                    .bias_grad = {}};
    for (const std::int64_t index : argmax.indices()) results.argmax.push_back(static_cast<double>(index));
    if (given.grads) {
      results.hidden_grad = of_x.values();
      results.weight_grad = of_w.values();
      if (given.bias) results.bias_grad = of_b.values();
    }
    return results;
  }

  void expect_the_same(const GivenLayer& given, const std::vector<std::int64_t>& first) {
    SCOPED_TRACE(
        fmt::format("{}, {} ranks, chunks of {}", given.name, first.size(), given.operation.chunk_tokens));
    ThreadRanks& group = groups_.emplace_back(static_cast<int>(first.size()));
    const Results whole = run(given, 0, classes, nullptr);
    std::vector<Results> ranks(first.size());
    const auto end_of = [&](std::size_t rank) { return rank + 1 < first.size() ? first[rank + 1] : classes; };
    for_each_rank(first.size(), [&](std::size_t rank) {
      const Shard shard{.communicator = group.communicator(static_cast<int>(rank)),
                        .first_class = first[rank],
                        .classes = classes};
      try {
        ranks[rank] = run(given, first[rank], end_of(rank), &shard);
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
    if (HasFailure()) return;
    const double narrow = given.dtype == DType::f32 ? 2e-5 : 4 * rounding(given.dtype);
    std::vector<double> sum(whole.hidden_grad.size());
    for (std::size_t rank = 0; rank < first.size(); ++rank) {
      SCOPED_TRACE(fmt::format("rank {}", rank));
      const Results& own = ranks[rank];
      expect_near(own.loss, whole.loss, narrow, 1e-5, "loss");
      expect_near(own.lse, whole.lse, narrow, 1e-5, "lse");
      EXPECT_EQ(own.argmax, whole.argmax);
      EXPECT_EQ(own.loss, ranks[0].loss) << "not the same bits";
      if (!given.grads) continue;
      const auto part = [&](const std::vector<double>& all, std::int64_t width) {
        return std::vector<double>(all.begin() + first[rank] * width, all.begin() + end_of(rank) * width);
      };
      expect_near(own.weight_grad, part(whole.weight_grad, hidden), narrow, 20 * narrow, "weight_grad");
      if (given.bias) expect_near(own.bias_grad, part(whole.bias_grad, 1), narrow, 10 * narrow, "bias_grad");
      std::transform(sum.begin(), sum.end(), own.hidden_grad.begin(), sum.begin(), std::plus<>());
    }
    expect_near(sum, whole.hidden_grad, narrow, 20 * narrow, "the ranks' sum of hidden_grad");
  }
};

TEST_F(LinearRanks, HaveTheResultsOfOneWithAllClasses) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  const std::vector<GivenLayer> calls{
      {.name = "mean", .operation = {.chunk_tokens = 4}, .bias = true},
      {.name = "weights and z-loss",
       .operation = {.cross_entropy = {.z_loss = 0.01f, .softcap = 5}, .chunk_tokens = 4},
       .class_weight = true,
       .upstreams = true},
      {.name = "bf16",
       .operation = {.cross_entropy = {.label_smoothing = 0.1f}, .chunk_tokens = 4},
       .dtype = bf16},
      {.name = "none",
       .operation = {.cross_entropy = {.reduction = Reduction::none, .logit_scale = 0.5f}, .chunk_tokens = 2},
       .upstreams = true},
      {.name = "probabilities",
       .operation = {.cross_entropy = {.reduction = Reduction::sum}},
       .probabilities = true},
      {.name = "f32 logits", .operation = {.chunk_tokens = 5, .logits_dtype = DType::f32}, .dtype = bf16},
      {.name = "tokens that are left out", .operation = {.chunk_tokens = 3, .valid_tokens = 7}, .bias = true},
      {.name = "loss alone", .operation = {.chunk_tokens = 4}, .class_weight = true, .grads = false},
      {.name = "no tokens",
       .operation = {.cross_entropy = {.reduction = Reduction::sum}},
       .bias = true,
       .tokens = 0},
  };
  for (std::size_t call = 0; call < calls.size(); ++call)
    if (is_drawn(seed_, call, 2))
      expect_the_same(calls[call], call % 2 == 0 ? std::vector<std::int64_t>{0, 28, 56}
                                                 : std::vector<std::int64_t>{0, 28});
}

TEST_F(LinearRanks, WhoseCallsDoNotFitEachOtherAllHearOfIt) {
  const auto messages = [&](const GivenLayer& one, const GivenLayer& other) {
    ThreadRanks& group = groups_.emplace_back(2);
    std::vector<std::string> heard(2);
    for_each_rank(2, [&](std::size_t rank) {
      const Shard shard{.communicator = group.communicator(static_cast<int>(rank)),
                        .first_class = rank == 0 ? 0 : boundary,
                        .classes = classes};
      try {
        run(rank == 0 ? one : other, shard.first_class, rank == 0 ? boundary : classes, &shard);
      } catch (const InvalidArgument& error) {
        heard[rank] = error.what();
      }
    });
    return heard;
  };
  EXPECT_THAT(messages({.operation = {.chunk_tokens = 4}}, {.operation = {.chunk_tokens = 3}}),
              testing::Each(testing::HasSubstr(
                  "LinearCrossEntropy: chunk_tokens is 3 on rank 1; expected 4, as on rank 0")));
  EXPECT_THAT(messages({.tokens = 9}, {.tokens = 8}),
              testing::Each(testing::HasSubstr("hidden.rows is 8 on rank 1; expected 9, as on rank 0")));
  EXPECT_THAT(messages({.operation = {.valid_tokens = 8}}, {.operation = {.valid_tokens = 7}}),
              testing::Each(testing::HasSubstr("valid_tokens is 7 on rank 1; expected 8, as on rank 0")));
  EXPECT_THAT(messages({}, {.grads = false}), testing::Each(testing::HasSubstr("gradients is 0 on rank 1")));
}

/// Whatever their own classes.
TEST_F(LinearRanks, TakeTheSameChunks) {
  ThreadRanks group(3);
  const auto schedule = [&](std::int64_t columns, std::int64_t budget) {
    constexpr std::int64_t tokens = 260;
    const Matrix x(*context_, bf16, tokens, hidden), w(*context_, bf16, columns, hidden),
        target(*context_, DType::i64, tokens, 1), of_w(*context_, bf16, columns, hidden);
    return context_->schedule(
        LinearCrossEntropy{.memory_budget = budget},
        {.hidden = x.tensor(), .weight = w.tensor(), .target = target.tensor(), .weight_grad = of_w.tensor()},
        {.communicator = group.communicator(0), .first_class = 0, .classes = classes});
  };
  // A third of the 83 classes is 28, whose logits take 128 bytes a token, and whose sums 28 x 12 x 4.
  for (const std::int64_t columns : {1, 28, 81}) {
    EXPECT_EQ(schedule(columns, 0).chunk_tokens, 260);
    EXPECT_EQ(schedule(columns, 100 * 128).chunk_tokens, 100);
    EXPECT_EQ(schedule(columns, 100 * 128).accumulation, DType::f32);
    EXPECT_EQ(schedule(columns, 259 * 128).chunk_tokens, 260) << "which needs less memory than two with sums";
  }
}

TEST_F(LinearRanks, RefuseWhatMeansNothing) {
  ThreadRanks group(1);
  const auto message = [&](const Shard& shard) -> std::string {
    try {
      run({}, 0, 28, &shard);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message({.communicator = group.communicator(0), .first_class = 0, .classes = 20}),
              testing::HasSubstr(
                  "LinearCrossEntropy: classes is 20; expected 28 or more, the number of rows of weight"));
  EXPECT_THAT(message({.communicator = {}, .first_class = 0, .classes = 83}),
              testing::HasSubstr("communicator.all_gather is null"));
}

}  // namespace
}  // namespace ce::test
