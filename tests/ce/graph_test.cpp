// Calls that are captured into CUDA graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ce/error.hpp"
#include "tests/ce/fixture.hpp"
#include "tests/ce/gpu_fixture.hpp"

namespace ce::test {
namespace {

using testing::HasSubstr;

const CrossEntropyCase mean{.name = "", .dtype = DType::bf16, .rows = 300, .columns = 256};

/// The choice of a call, and the graph that it was captured into.
struct Captured {
  Choice choice;
  std::unique_ptr<Graph> graph;
};

class GraphTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) gpu_ = std::make_unique<CurrentGpu>();
  }

  template <class Call>
  static Captured capture(Context& context, const Call& call, const GpuStream& stream) {
    Captured captured;
    stream.begin_capture();
    captured.choice = context.run(call.operation(), call.tensors(), stream.get());
    EXPECT_TRUE(stream.captures()) << "the call has invalidated the capture";
    captured.graph = std::make_unique<Graph>(stream.end_capture());
    return captured;
  }

  /// Replays right results, the same bits each time.
  static std::vector<std::byte> expect_right_replays(Context& context, CrossEntropyCall& call,
                                                     const Graph& graph, const GpuStream& stream) {
    std::vector<std::byte> first;
    for (int replay = 0; replay < 4; ++replay) {
      call.spoil();
      graph.launch(stream.get());
      context.check(stream.get());
      if (replay == 0) {
        call.expect_right();
        first = call.result();
      }
      EXPECT_EQ(call.result(), first);
    }
    return first;
  }

 private:
  std::unique_ptr<CurrentGpu> gpu_;
};

TEST_F(GraphTest, AKnownProblemIsCapturedAsItIs) {
  const LogLines log;
  Context context(options(Policy::tune));
  const GpuStream stream;
  CrossEntropyCall call(context, mean, 1), other(context, mean, 2);
  const Choice tuned = context.run(call.operation(), call.tensors(), stream.get());
  EXPECT_EQ(tuned.origin, Origin::tuned);
  context.check(stream.get());
  call.expect_right();
  const std::vector<std::byte> eager = call.result();
  call.spoil();

  const Captured captured = capture(context, call, stream);
  stream.wait();
  EXPECT_NE(call.result(), eager) << "the captured call ran at once";
  EXPECT_EQ(captured.choice.config, tuned.config);
  EXPECT_EQ(captured.choice.origin, Origin::tuned);
  EXPECT_EQ(captured.graph->nodes(), 3) << "count, rows, sum and nothing else";
  EXPECT_EQ(expect_right_replays(context, call, *captured.graph, stream), eager);

  // Eager calls between replays, on the same stream and at the same time on another.
  const GpuStream beside;
  for (int turn = 0; turn < 20; ++turn) {
    captured.graph->launch(stream.get());
    context.run(other.operation(), other.tensors(), beside.get());
    captured.graph->launch(stream.get());
    context.run(other.operation(), other.tensors(), turn % 2 == 0 ? stream.get() : beside.get());
    context.check(stream.get());
    context.check(beside.get());
    EXPECT_EQ(call.result(), eager);
  }
  other.expect_right();
  EXPECT_EQ(log.count(LogLevel::info, "tuned "), 1);
}

TEST_F(GraphTest, AnUnknownProblemIsNotTunedUntilLater) {
  const LogLines log;
  Context context(options(Policy::tune));
  const GpuStream stream;
  CrossEntropyCall call(context, mean, 1);
  const Captured captured = capture(context, call, stream);
  EXPECT_EQ(captured.choice.origin, Origin::fallback);
  EXPECT_THAT(captured.choice.reason, HasSubstr("captured"));
  EXPECT_EQ(log.count(LogLevel::info, "tuned "), 0);
  const std::vector<std::byte> first = expect_right_replays(context, call, *captured.graph, stream);

  // A second capture finds the same kernel and compiles nothing.
  const int compiled = context.compiled();
  const Captured again = capture(context, call, stream);
  EXPECT_EQ(again.choice.config, captured.choice.config);
  EXPECT_EQ(context.compiled(), compiled);

  // The first call that may tune does, and the graphs go on with what they have.
  call.spoil();
  EXPECT_EQ(context.run(call.operation(), call.tensors(), stream.get()).origin, Origin::tuned);
  context.check(stream.get());
  call.expect_right();
  EXPECT_EQ(log.count(LogLevel::info, "tuned "), 1);
  EXPECT_EQ(expect_right_replays(context, call, *captured.graph, stream), first);
  EXPECT_EQ(expect_right_replays(context, call, *again.graph, stream), first);
  EXPECT_EQ(capture(context, call, stream).choice.origin, Origin::tuned);
}

TEST_F(GraphTest, AnUnknownProblemTakesTheNearestWinner) {
  Context context(options(Policy::tune));
  const GpuStream stream;
  CrossEntropyCall known(context, mean, 1);
  context.run(known.operation(), known.tensors(), stream.get());
  CrossEntropyCase near = mean;
  near.columns = 248;
  CrossEntropyCall call(context, near, 2);
  const Captured captured = capture(context, call, stream);
  EXPECT_EQ(captured.choice.origin, Origin::nearest);
  EXPECT_EQ(captured.choice.config, predicted({.operation = generator::Operation::cross_entropy,
                                               .dtype = DType::bf16,
                                               .reduction = Reduction::mean,
                                               .gradient = true,
                                               .rows = near.rows,
                                               .columns = near.columns}));
  EXPECT_THAT(captured.choice.reason, HasSubstr("captured"));
  expect_right_replays(context, call, *captured.graph, stream);
}

TEST_F(GraphTest, GraphsAtTheSameTimeDoNotShareWorkspaces) {
  Context context(options(Policy::lookup));
  const GpuStream first, second;
  CrossEntropyCase large = mean;
  large.rows = 20000;
  CrossEntropyCall one(context, large, 1), other(context, large, 2);
  // Both captured from the same stream, then run beside each other.
  const Captured of_one = capture(context, one, first), of_other = capture(context, other, first);
  const auto bits_of_one = expect_right_replays(context, one, *of_one.graph, first);
  const auto bits_of_other = expect_right_replays(context, other, *of_other.graph, second);
  for (int turn = 0; turn < 20; ++turn) {
    of_one.graph->launch(first.get());
    of_other.graph->launch(second.get());
  }
  context.check(first.get());
  context.check(second.get());
  EXPECT_EQ(one.result(), bits_of_one);
  EXPECT_EQ(other.result(), bits_of_other);
}

TEST_F(GraphTest, APlanIsCapturedToo) {
  Context context(options(Policy::lookup));
  const GpuStream stream;
  CrossEntropyCall call(context, mean, 1);
  const Plan plan = context.prepare(call.operation(), call.tensors(), stream.get());
  stream.begin_capture();
  plan.run(stream.get());
  EXPECT_TRUE(stream.captures());
  const Graph graph(stream.end_capture());
  expect_right_replays(context, call, graph, stream);
}

TEST_F(GraphTest, WhatCannotBeCapturedSaysSoAndSparesTheCapture) {
  ContextOptions little = options(Policy::lookup);
  little.capture_bytes = 64 << 10;
  Context context(little);
  const GpuStream stream;
  constexpr std::size_t many = 100;
  const Memory losses = context.allocate(many * sizeof(float));
  CrossEntropyCall call(context, mean, 1);
  CrossEntropy::Tensors other = call.tensors();
  stream.begin_capture();
  // One output needs its memory once.
  std::size_t captured = 0;
  for (; captured < many; ++captured) context.run(call.operation(), call.tensors(), stream.get());
  try {
    for (std::size_t loss = 0; loss < many; ++loss, ++captured) {
      other.loss.data = static_cast<float*>(losses.data()) + loss;
      context.run(call.operation(), other, stream.get());
    }
    ADD_FAILURE() << "64 KiB held the workspaces of 300 rows a hundred times";
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(), HasSubstr("capture_bytes"));
  }
  EXPECT_THROW(context.check(stream.get()), Unsupported);
  EXPECT_TRUE(stream.captures());
  const Graph graph(stream.end_capture());
  EXPECT_GT(captured, many);
  EXPECT_EQ(graph.nodes(), 3 * captured);
  expect_right_replays(context, call, graph, stream);
}

}  // namespace
}  // namespace ce::test
