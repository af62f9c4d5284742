#include "ce/linear_schedule.hpp"

#include <gtest/gtest.h>

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

TEST(LinearSchedule, TakesAllTokensAtOnceWhereTheyFit) {
  const LinearSchedule schedule = plan_for(training(), 4 * gib).schedule;
  EXPECT_EQ(schedule.chunks, 1);
  EXPECT_EQ(schedule.chunk_tokens, 8192);
  EXPECT_LE(schedule.workspace_bytes, 4 * gib);
}

TEST(LinearSchedule, SumsInF32WhereTheBudgetHoldsIt) {
  const LinearSchedule schedule = plan_for(training(32768), 4 * gib).schedule;
  EXPECT_GT(schedule.chunks, 1);
  EXPECT_EQ(schedule.accumulation, DType::f32);
  EXPECT_LE(schedule.workspace_bytes, 4 * gib);
  EXPECT_EQ(schedule.chunk_tokens, 8192) << "docs/linear.md";
}

TEST(LinearSchedule, ASmallBudgetSumsInTheWeightsDtype) {
  const LinearSchedule schedule = plan_for(training(), gib / 2).schedule;
  EXPECT_EQ(schedule.accumulation, DType::bf16);
  EXPECT_LE(schedule.workspace_bytes, gib / 2);
  EXPECT_EQ(schedule.chunk_tokens, 1664) << "docs/linear.md";
  LinearShape f32 = training();
  f32.f32_accumulation = true;
  EXPECT_EQ(plan_for(f32, gib / 2).schedule.accumulation, DType::f32) << "asked for, whatever the budget";
}

TEST(LinearSchedule, ABudgetThatHoldsNothingTakesTheLeastChunk) {
  EXPECT_EQ(plan_for(training(), 1).schedule.chunk_tokens, 64);
  EXPECT_EQ(plan_for(training(10), 1).schedule.chunk_tokens, 10);
}

TEST(LinearSchedule, EveryPieceIsAlignedAndApart) {
  LinearShape shape = training(1001);
  shape.classes = shape.all_classes = 50257;
  shape.logits = DType::f32;
  shape.bias_grad = true;
  shape.bias_grad_dtype = DType::bf16;
  shape.converts_bias = shape.converts_upstream = shape.scales_weights = true;
  shape.upstreams = 1001;
  shape.has_loss = false;
  shape.chunk_tokens = 100;
  const LinearPlan plan = plan_for(shape, gib);
  EXPECT_EQ(plan.schedule.chunks, 11);
  std::int64_t end = 0;
  for (const LinearPiece& piece :
       {plan.logits, plan.rounded_logits, plan.weight_sum, plan.bias_sum, plan.bias, plan.class_weight,
        plan.upstream, plan.divisor, plan.losses, plan.z_losses, plan.products}) {
    EXPECT_EQ(piece.start % 256, 0);
    EXPECT_GE(piece.start, end);
    EXPECT_GT(piece.bytes, 0);
    end = piece.start + piece.bytes;
  }
  EXPECT_GE(plan.schedule.workspace_bytes, end);
  EXPECT_GE(plan.logits.bytes, 100 * 50257 * 4);
}

TEST(LinearSchedule, NeverMoreThanTheBudgetAsksFor) {
  for (const std::int64_t tokens : {1, 100, 5000, 16384, 100000})
    for (std::int64_t budget = gib / 4; budget <= 64 * gib; budget *= 2)
      for (const DType logits : {DType::bf16, DType::f32}) {
        LinearShape shape = training(tokens);
        shape.logits = logits;
        const LinearSchedule schedule = plan_for(shape, budget).schedule;
        EXPECT_LE(schedule.workspace_bytes, budget) << tokens << " tokens, " << budget << " bytes";
        EXPECT_LT((schedule.chunks - 1) * schedule.chunk_tokens, tokens);
        EXPECT_GE(schedule.chunks * schedule.chunk_tokens, tokens);
      }
}

}  // namespace
}  // namespace ce
