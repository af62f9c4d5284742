#include "ce/linear_plan.hpp"

#include <gtest/gtest.h>

#include <initializer_list>

#include "ce/linear_statistics.hpp"

namespace ce {
namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;

LinearShape training(std::int64_t tokens = 8192) {
  return {.tokens = tokens,
          .hidden = 4096,
          .classes = 128256,
          .all_classes = 128256,
          .dtype = DType::bf16,
          .logits = DType::bf16,
          .hidden_grad = true,
          .weight_grad = true,
          .weight_grad_dtype = DType::bf16,
          .has_loss = true};
}

TEST(LinearPlanFor, TakesAllTokensAtOnceWhereTheyFit) {
  const LinearSchedule schedule = plan_for(training(), 4 * gib).schedule;
  EXPECT_EQ(schedule.chunks, 1);
  EXPECT_EQ(schedule.chunk_tokens, 8192);
  EXPECT_LE(schedule.workspace_bytes, 4 * gib);
}

TEST(LinearPlanFor, SumsInF32WhereTheBudgetHoldsIt) {
  const LinearSchedule schedule = plan_for(training(32768), 4 * gib).schedule;
  EXPECT_GT(schedule.chunks, 1);
  EXPECT_EQ(schedule.accumulation, DType::f32);
  EXPECT_LE(schedule.workspace_bytes, 4 * gib);
  EXPECT_EQ(schedule.chunk_tokens, 8192) << "docs/linear.md";
}

TEST(LinearPlanFor, ASmallBudgetSumsInTheWeightsDtype) {
  const LinearSchedule schedule = plan_for(training(), gib / 2).schedule;
  EXPECT_EQ(schedule.accumulation, DType::bf16);
  EXPECT_LE(schedule.workspace_bytes, gib / 2);
  EXPECT_EQ(schedule.chunk_tokens, 1664) << "docs/linear.md";
  LinearShape f32 = training();
  f32.f32_accumulation = true;
  EXPECT_EQ(plan_for(f32, gib / 2).schedule.accumulation, DType::f32) << "asked for, whatever the budget";
}

TEST(LinearPlanFor, ABudgetThatHoldsNothingTakesTheLeastChunk) {
  EXPECT_EQ(plan_for(training(), 1).schedule.chunk_tokens, 64);
  EXPECT_EQ(plan_for(training(10), 1).schedule.chunk_tokens, 10);
}

/// \param pieces  in the order in which they lie
void expect_apart(const LinearPlan& plan, std::initializer_list<LinearPiece> pieces) {
  std::int64_t end = 0;
  for (const LinearPiece& piece : pieces) {
    EXPECT_EQ(piece.start % 256, 0);
    EXPECT_GE(piece.start, end);
    EXPECT_GT(piece.bytes, 0);
    end = piece.start + piece.bytes;
  }
  EXPECT_GE(plan.schedule.workspace_bytes, end);
}

TEST(LinearPlanFor, EveryPieceIsAlignedAndApart) {
  LinearShape shape = training(1001);
  shape.classes = shape.all_classes = 50257;
  shape.logits = DType::f32;
  shape.bias_grad = true;
  shape.bias_grad_dtype = DType::bf16;
  shape.converts_bias = shape.converts_upstream = shape.scales_weights = shape.f32_hidden_product = true;
  shape.upstreams = 1001;
  shape.has_loss = false;
  shape.chunk_tokens = 100;
  shape.all_tokens = 3000;
  shape.vector_bytes = 8192;
  const LinearPlan plan = plan_for(shape, gib);
  EXPECT_EQ(plan.schedule.chunks, 11);
  expect_apart(plan, {plan.valid_tokens, plan.hidden, plan.hidden_grad, plan.logits, plan.rounded_logits,
                      plan.hidden_product, plan.weight_sum, plan.bias_sum, plan.bias, plan.class_weight,
                      plan.upstream, plan.divisor, plan.losses, plan.z_losses, plan.products});
  EXPECT_GE(plan.logits.bytes, 100 * 50257 * 4);
  EXPECT_GE(plan.valid_tokens.bytes, 8 + 1001 * 8 + 3000 * 8 + 8192);
  EXPECT_GE(plan.hidden.bytes, 100 * 4096 * 2);
  EXPECT_GE(plan.hidden_product.bytes, 100 * 4096 * 4);
}

TEST(LinearPlanFor, NeverMoreThanTheBudgetAsksFor) {
  for (const std::int64_t tokens : {1, 100, 5000, 16384, 100000})
    for (std::int64_t budget = gib / 4; budget <= 64 * gib; budget *= 2)
      for (const DType logits : {DType::bf16, DType::f32}) {
        LinearShape shape = training(tokens);
        shape.logits = logits;
        if (tokens == 5000) {
          shape.all_tokens = 20000;
          shape.vector_bytes = 40000;
        }
        shape.f32_hidden_product = tokens == 16384;
        const LinearSchedule schedule = plan_for(shape, budget).schedule;
        EXPECT_LE(schedule.workspace_bytes, budget) << tokens << " tokens, " << budget << " bytes";
        EXPECT_LT((schedule.chunks - 1) * schedule.chunk_tokens, tokens);
        EXPECT_GE(schedule.chunks * schedule.chunk_tokens, tokens);
      }
}

/// Of which exponentials may be made, on an H200.
LinearShape with_exponentials(std::int64_t tokens = 8192) {
  LinearShape shape = training(tokens);
  shape.hidden = 2048;
  shape.exponentials = generator::LinearStatistics{.exponentials = true};
  shape.multiprocessors = 132;
  return shape;
}

TEST(LinearPlanFor, EveryPieceOfExponentialsIsAlignedAndApart) {
  LinearShape shape = with_exponentials(1001);
  shape.wants_exponentials = true;
  shape.chunk_tokens = 100;
  const LinearPlan plan = plan_for(shape, 4 * gib);
  EXPECT_TRUE(plan.schedule.exponentials);
  expect_apart(
      plan, {plan.logits, plan.statistics, plan.maxima, plan.reference, plan.raised, plan.row_factor,
             plan.target_factor, plan.order, plan.classes_in_order, plan.scaled_hidden, plan.hidden_product,
             plan.weight_sum, plan.divisor, plan.losses, plan.z_losses, plan.products});
  EXPECT_GE(plan.logits.bytes, 100 * 128256 * 2);
  EXPECT_GE(plan.maxima.bytes, 100 * (128256 / 128) * 4);
  EXPECT_GE(plan.hidden_product.bytes, 100 * 2048 * 4);
  EXPECT_GE(plan.statistics.bytes, 100 * most_messages(132, 100, 128256) * 3 * 4);
}

TEST(LinearPlanFor, HoldsTheStatisticsOfALastChunkWithMoreParts) {
  LinearShape shape = with_exponentials(556);
  shape.wants_exponentials = true;
  shape.chunk_tokens = 300;
  const auto bytes = [](std::int64_t tokens) { return tokens * most_messages(132, tokens, 128256) * 3 * 4; };
  ASSERT_GT(bytes(256), bytes(300)) << "one row of tiles has all clusters";
  EXPECT_GE(plan_for(shape, 4 * gib).statistics.bytes, bytes(256));
}

std::vector<std::int64_t> chunks_of(const std::vector<LinearPlan>& plans) {
  std::vector<std::int64_t> chunks;
  for (const LinearPlan& plan : plans) chunks.push_back(plan.schedule.chunk_tokens);
  return chunks;
}

using Chunks = std::vector<std::int64_t>;

TEST(LinearPlansFor, AreThoseWithHalvesOfTheLargestChunkDownToAThousandTokens) {
  EXPECT_EQ(chunks_of(plans_for(training(), 8 * gib)), (Chunks{8192, 4096, 2048, 1024}));
  EXPECT_EQ(chunks_of(plans_for(training(32768), 4 * gib)), (Chunks{8192, 4096, 2048, 1024}));
  EXPECT_EQ(chunks_of(plans_for(training(5000), 8 * gib)), (Chunks{5000, 2560, 1280}));
  EXPECT_EQ(chunks_of(plans_for(training(2047), 8 * gib)), (Chunks{2047, 1024}));
  EXPECT_EQ(chunks_of(plans_for(training(1024), 8 * gib)), Chunks{1024});
}

TEST(LinearPlansFor, TakeNoMoreThanTheBudgetWithTheSumsOfTheWeightsGradient) {
  // The logits of all tokens take 2 GiB less a bit, and so do the sums: only small chunks have room beside them.
  EXPECT_EQ(chunks_of(plans_for(training(), 5 * gib / 2)), (Chunks{8192, 2048, 1024}));
  EXPECT_EQ(chunks_of(plans_for(training(), 9 * gib / 4)), (Chunks{8192, 1024}));
  EXPECT_EQ(chunks_of(plans_for(training(), 2 * gib)), Chunks{8192});
  for (const std::int64_t tokens : {3000, 8192, 50000})
    for (std::int64_t budget = gib / 4; budget <= 16 * gib; budget = budget * 5 / 4)
      for (const LinearPlan& plan : plans_for(training(tokens), budget)) {
        EXPECT_LE(plan.schedule.workspace_bytes, budget)
            << tokens << " tokens, chunks of " << plan.schedule.chunk_tokens;
        EXPECT_TRUE(plan.parts == 1 || plan.schedule.accumulation == DType::f32);
      }
}

TEST(LinearPlansFor, AreAlsoOfExponentialsWhereTheyMayBeFaster) {
  const std::vector<LinearPlan> plans = plans_for(with_exponentials(), 8 * gib);
  EXPECT_EQ(chunks_of(plans), (Chunks{8192, 4096, 2048, 1024, 8192, 4096}));
  for (std::size_t i = 0; i < plans.size(); ++i) EXPECT_EQ(plans[i].schedule.exponentials, i >= 4) << i;
  LinearShape shape = with_exponentials();
  shape.wants_exponentials = true;
  EXPECT_EQ(chunks_of(plans_for(shape, 8 * gib)), (Chunks{8192, 4096, 2048, 1024})) << "of these alone";
  for (const std::int64_t tokens : {100, 3000, 8192, 50000})
    for (std::int64_t budget = gib / 4; budget <= 16 * gib; budget = budget * 5 / 4)
      for (const std::vector<LinearPlan> all = plans_for(with_exponentials(tokens), budget);
           const LinearPlan& plan : all) {
        EXPECT_LE(plan.schedule.workspace_bytes, budget)
            << tokens << " tokens, chunks of " << plan.schedule.chunk_tokens;
        EXPECT_TRUE(plan.schedule.accumulation == DType::f32 ||
                    plan.schedule.chunks <= all.front().schedule.chunks)
            << "rounds no more often";
      }
}

TEST(LinearPlansFor, AreOneWhereTheChunksAreChosenOrMoreOfThemWouldRoundMore) {
  EXPECT_EQ(plans_for(training(), gib / 2).size(), 1U) << "each of its chunks rounds its sum";
  LinearShape shape = training();
  shape.own_accumulation = true;
  EXPECT_EQ(plans_for(shape, 8 * gib).size(), 1U);
  shape = training();
  shape.chunk_tokens = 4096;
  EXPECT_EQ(chunks_of(plans_for(shape, 8 * gib)), Chunks{4096});
  EXPECT_EQ(plans_for(training(0), 8 * gib).size(), 1U);
}

TEST(LinearPlansFor, NeedNoSumsWhereTheWeightsGradientIsOne) {
  LinearShape shape = training();
  shape.weight_grad_dtype = DType::f32;
  EXPECT_EQ(plans_for(shape, 9 * gib / 4).size(), 4U);
  shape.weight_grad = false;
  EXPECT_EQ(plans_for(shape, 9 * gib / 4).size(), 4U);
}

}  // namespace
}  // namespace ce
