// The race of a linear layer's chunks where times mean something, and where its trials have a stream of their own.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "ce/error.hpp"
#include "tests/ce/fixture.hpp"
#include "tests/ce/gpu_fixture.hpp"

namespace ce::test {
namespace {

class LinearGpuTest : public ContextTest {
 protected:
  static constexpr std::int64_t tokens = 4096, hidden = 128, classes = 8192;

  void SetUp() override {
    ContextTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ContextOptions tuning = options(Policy::tune);
    tuning.tuning_seconds = 1;
    context = std::make_unique<Context>(tuning);
    std::mt19937_64 random(3);
    for (const std::int64_t rows : {tokens, classes})
      matrices.emplace_back(*context, bf16, rows, hidden).set(random_values(rows * hidden, random));
    matrices.emplace_back(*context, DType::i64, tokens, 1);
    for (std::int64_t token = 0; token < tokens; ++token)
      targets.push_back(token % 3 == 0 ? -100 : static_cast<std::int64_t>(random() % classes));
    matrices[2].set_indices(targets);
    matrices.emplace_back(*context, DType::f32, 1, 1);
    matrices.emplace_back(*context, bf16, tokens, hidden);
    matrices.emplace_back(*context, bf16, classes, hidden);
    tensors = {.hidden = matrices[0].tensor(),
               .weight = matrices[1].tensor(),
               .target = matrices[2].tensor(),
               .loss = matrices[3].tensor(),
               .hidden_grad = matrices[4].tensor(),
               .weight_grad = matrices[5].tensor()};
  }
  [[nodiscard]] std::vector<std::vector<std::byte>> run(const LinearCrossEntropy& operation, Stream stream) {
    context->run(operation, tensors, stream);
    context->synchronize(stream);
    return {matrices[3].bytes(), matrices[4].bytes(), matrices[5].bytes()};
  }
  /// The call races, and what it makes is what the winner's chunks make.
  void expect_race(const LinearCrossEntropy& operation) {
    const CurrentGpu gpu;
    const GpuStream stream;
    const LinearSchedule before = context->schedule(operation, tensors);
    EXPECT_LE(before.workspace_bytes, operation.memory_budget);
    const auto raced = run(operation, stream.get());
    const LinearSchedule after = context->schedule(operation, tensors);
    EXPECT_LE(after.chunk_tokens, before.chunk_tokens);
    EXPECT_GE(after.chunk_tokens, 1024);
    EXPECT_LE(after.workspace_bytes, before.workspace_bytes);
    LinearCrossEntropy chosen = operation;
    chosen.chunk_tokens = after.chunk_tokens;
    EXPECT_EQ(run(chosen, stream.get()), raced) << "chunks of " << after.chunk_tokens;
    EXPECT_EQ(run(operation, stream.get()), raced);
    Context later(options(Policy::lookup));
    EXPECT_EQ(later.schedule(operation, tensors).chunk_tokens, after.chunk_tokens);
  }

  std::unique_ptr<Context> context;
  std::vector<Matrix> matrices;
  std::vector<std::int64_t> targets;
  LinearCrossEntropy::Tensors tensors;
};

TEST_F(LinearGpuTest, ChunksRaceAndTheDatabaseKnowsTheWinner) {
  expect_race({.memory_budget = std::int64_t{256} << 20});
}

TEST_F(LinearGpuTest, ChunksOfValidTokensRace) {
  expect_race({.memory_budget = std::int64_t{256} << 20, .valid_tokens = 2800});
}

TEST_F(LinearGpuTest, ARaceCountsATargetOutOfRangeOnce) {
  const CurrentGpu gpu;
  const GpuStream stream;
  targets[1000] = classes + 1;
  matrices[2].set_indices(targets);
  context->run(LinearCrossEntropy{}, tensors, stream.get());
  try {
    context->check(stream.get());
    ADD_FAILURE() << "nothing is told";
  } catch (const TargetOutOfRange& error) {
    EXPECT_EQ(error.count(), 1);
  }
}

}  // namespace
}  // namespace ce::test
