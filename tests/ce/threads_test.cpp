// One Context, many threads.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <limits>
#include <thread>

#include "tests/ce/fixture.hpp"
#include "tests/seed.hpp"

namespace ce::test {
namespace {

class Threads : public ContextTest {};

/// As long as a search takes: nothing bounds it, or more seconds than a clock counts do.
class ThreadsThatWait : public Threads, public testing::WithParamInterface<double> {};

TEST_P(ThreadsThatWait, MeetTheSameNewProblemAtOnce) {
  constexpr int count = 8;
  const LogLines log;
  ContextOptions patient = options(Policy::tune);
  patient.tuning_seconds = GetParam();
  Context context(patient);
  std::vector<std::unique_ptr<SoftmaxCall>> calls;
  for (int i = 0; i < count; ++i)
    calls.push_back(
        std::make_unique<SoftmaxCall>(context, SoftmaxCase{.name = "", .dtype = DType::bf16, .columns = 128},
                                      static_cast<std::uint64_t>(i)));
  std::barrier start(count);
  std::vector<Choice> choices(count);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < count; ++i)
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        choices[i] = context.run(Softmax{}, calls[i]->tensors());
      });
  }
  context.synchronize();
  EXPECT_EQ(log.count(LogLevel::info, "tuned "), 1);
  for (std::size_t i = 0; i < count; ++i) {
    calls[i]->expect_right();
    EXPECT_EQ(choices[i].origin, Origin::tuned);
    EXPECT_EQ(choices[i].config, choices[0].config);
  }
}

INSTANTIATE_TEST_SUITE_P(Seconds, ThreadsThatWait,
                         testing::Values(0, std::numeric_limits<double>::infinity()));

TEST_F(Threads, RunManyProblems) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  constexpr std::size_t count = 6;
  Context context(options(Policy::lookup));
  const std::vector<std::int64_t> widths{33, 64, 100};
  std::vector<std::vector<std::unique_ptr<SoftmaxCall>>> calls(count);
  for (std::size_t i = 0; i < count; ++i)
    for (const std::int64_t width : widths)
      calls[i].push_back(std::make_unique<SoftmaxCall>(
          context, SoftmaxCase{.name = "", .rows = 5, .columns = width}, seed + i));
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < count; ++i)
      threads.emplace_back([&, i] {
        for (std::size_t turn = 0; turn < 4 * widths.size(); ++turn)
          context.run(Softmax{}, calls[i][(turn + i) % widths.size()]->tensors());
      });
  }
  context.synchronize();
  for (const auto& of_thread : calls)
    for (const auto& call : of_thread) call->expect_right();
  EXPECT_EQ(context.compiled(), static_cast<int>(widths.size()));
}

/// One with right targets, one with wrong ones; each looks after its own calls.
TEST_F(Threads, AreToldOfTheirOwnStreamsTargetsAlone) {
  Context context(options(Policy::lookup));
  constexpr int turns = 200;
  // CU_STREAM_PER_THREAD; on the host device calls run on the thread that makes them.
  const Stream stream = tested_device() == "host" ? nullptr : reinterpret_cast<Stream>(std::uintptr_t{2});
  const auto failures_of = [&](std::int64_t class_index) {
    Matrix logits(context, DType::f32, 1, 4), target(context, DType::i64, 1, 1),
        loss(context, DType::f32, 1, 1);
    logits.set({1, 2, 3, 4});
    target.set_indices({class_index});
    int failures = 0;
    for (int turn = 0; turn < turns; ++turn) {
      context.run(CrossEntropy{},
                  {.logits = logits.tensor(), .target = target.tensor(), .loss = loss.tensor()}, stream);
      try {
        context.check(stream);
      } catch (const TargetOutOfRange& error) {
        EXPECT_EQ(error.first_target(), class_index);
        EXPECT_EQ(error.count(), 1);
        ++failures;
      }
    }
    return failures;
  };
  int right = -1, wrong = -1;
  {
    const std::jthread one([&] { right = failures_of(3); }), other([&] { wrong = failures_of(4); });
  }
  EXPECT_EQ(right, 0);
  EXPECT_EQ(wrong, turns);
}

/// Threads check while others run calls with such targets.
TEST_F(Threads, AreToldOfEachTargetOutOfRangeOnce) {
  constexpr int runners = 2, checkers = 2, turns = 300, bad_rows = 3;
  Context context(options(Policy::lookup));
  Matrix logits(context, DType::f32, bad_rows + 1, 4), target(context, DType::i64, bad_rows + 1, 1);
  logits.set(std::vector<double>(4 * (bad_rows + 1), 1));
  target.set_indices({2, 4, -1, 9});
  std::atomic<std::int64_t> told = 0;
  std::atomic<int> running = runners;
  const auto check = [&] {
    try {
      context.check();
    } catch (const TargetOutOfRange& error) {
      told += error.count();
      EXPECT_TRUE(error.first_row() == -1 || (error.first_row() >= 1 && error.first_row() <= bad_rows));
    }
  };
  {
    std::vector<std::unique_ptr<Matrix>> losses;
    for (int i = 0; i < runners; ++i)
      losses.push_back(std::make_unique<Matrix>(context, DType::f32, bad_rows + 1, 1));
    std::vector<std::jthread> threads;
    for (const auto& loss : losses)
      threads.emplace_back([&] {
        for (int turn = 0; turn < turns; ++turn)
          context.run(CrossEntropy{.reduction = Reduction::none},
                      {.logits = logits.tensor(), .target = target.tensor(), .loss = loss->tensor()});
        --running;
      });
    for (int i = 0; i < checkers; ++i)
      threads.emplace_back([&] {
        while (running > 0) check();
      });
  }
  check();
  EXPECT_EQ(told, std::int64_t{runners} * turns * bad_rows);
  EXPECT_NO_THROW(context.check());
}

/// Each call is several kernels, which share memory.
TEST_F(Threads, CallOnOneStream) {
  const std::uint64_t seed = test_seed();
  constexpr std::size_t count = 4;
  constexpr int turns = 25;
  Context context(options(Policy::lookup));
  std::vector<std::unique_ptr<CrossEntropyCall>> calls;
  for (std::size_t i = 0; i < count; ++i)
    calls.push_back(std::make_unique<CrossEntropyCall>(context, CrossEntropyCase{.name = ""}, seed + i));
  context.run(calls[0]->operation(), calls[0]->tensors());
  std::vector<std::vector<std::byte>> alone;
  for (const auto& call : calls) {
    context.run(call->operation(), call->tensors());
    context.synchronize();
    alone.push_back(call->result());
  }
  std::barrier start(count);
  std::vector<int> others(count);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < count; ++i)
      threads.emplace_back([&, i] {
        for (int turn = 0; turn < turns; ++turn) {
          calls[i]->spoil();
          start.arrive_and_wait();
          context.run(calls[i]->operation(), calls[i]->tensors());
          context.synchronize();
          others[i] += calls[i]->result() != alone[i] ? 1 : 0;
          start.arrive_and_wait();
        }
      });
  }
  for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(others[i], 0) << "calls of thread " << i;
  for (const auto& call : calls) call->expect_right();
}

}  // namespace
}  // namespace ce::test
