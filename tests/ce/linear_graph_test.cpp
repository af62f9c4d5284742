// Calls of LinearCrossEntropy that are captured into CUDA graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "ce/error.hpp"
#include "tests/ce/fixture.hpp"
#include "tests/ce/gpu_fixture.hpp"

namespace ce::test {
namespace {

class LinearGraphTest : public ContextTest {
 protected:
  static constexpr std::int64_t tokens = 300, hidden = 64, classes = 512;

  void SetUp() override {
    ContextTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    gpu_ = std::make_unique<CurrentGpu>();
    context = std::make_unique<Context>(options(Policy::lookup));
    const auto make = [&](DType dtype, std::int64_t rows, std::int64_t columns) {
      return Matrix(*context, dtype, rows, columns);
    };
    std::mt19937_64 random(3);
    for (const std::int64_t rows : {tokens, classes})
      matrices.push_back(make(bf16, rows, hidden)), matrices.back().set(random_values(rows * hidden, random));
    matrices.push_back(make(DType::i64, tokens, 1));
    std::vector<std::int64_t> targets(tokens);
    for (std::int64_t& target : targets) target = static_cast<std::int64_t>(random() % classes);
    matrices.back().set_indices(targets);
    matrices.push_back(make(DType::f32, 1, 1));
    matrices.push_back(make(bf16, tokens, hidden));
    matrices.push_back(make(bf16, classes, hidden));
    tensors = {.hidden = matrices[0].tensor(),
               .weight = matrices[1].tensor(),
               .target = matrices[2].tensor(),
               .loss = matrices[3].tensor(),
               .hidden_grad = matrices[4].tensor(),
               .weight_grad = matrices[5].tensor()};
  }
  [[nodiscard]] std::vector<std::vector<std::byte>> results() const {
    return {matrices[3].bytes(), matrices[4].bytes(), matrices[5].bytes()};
  }
  void spoil() {
    std::mt19937_64 random(9);
    for (const std::size_t i : {4, 5}) {
      Matrix& matrix = matrices[i];
      matrix.set(random_values(matrix.tensor().rows * hidden, random));
    }
    matrices[3].set({-1});
  }

  std::unique_ptr<Context> context;
  std::vector<Matrix> matrices;
  LinearCrossEntropy::Tensors tensors;
  const LinearCrossEntropy operation{.chunk_tokens = 128};

 private:
  std::unique_ptr<CurrentGpu> gpu_;
};

TEST_F(LinearGraphTest, ACallThatWasMadeOnceIsCapturedAsItIs) {
  const GpuStream stream;
  context->run(operation, tensors, stream.get());
  context->synchronize(stream.get());
  const auto eager = results();
  spoil();
  stream.begin_capture();
  context->run(operation, tensors, stream.get());
  EXPECT_TRUE(stream.captures()) << "the call has invalidated the capture";
  const Graph graph(stream.end_capture());
  stream.wait();
  EXPECT_NE(results(), eager) << "the captured call ran at once";
  for (int replay = 0; replay < 3; ++replay) {
    spoil();
    graph.launch(stream.get());
    stream.wait();
    EXPECT_EQ(results(), eager);
  }
}

TEST_F(LinearGraphTest, TokensThatAreLeftOutAreFoundAnewAtEachReplay) {
  const LinearCrossEntropy of_valid{.chunk_tokens = 128, .valid_tokens = 200};
  const GpuStream stream;
  const auto leave_out = [&](std::int64_t first, std::int64_t end) {
    std::vector<std::int64_t> targets(tokens, 7);
    std::fill(targets.begin() + first, targets.begin() + end, -100);
    matrices[2].set_indices(targets);
  };
  leave_out(0, 150);
  context->run(of_valid, tensors, stream.get());
  context->synchronize(stream.get());
  stream.begin_capture();
  context->run(of_valid, tensors, stream.get());
  EXPECT_TRUE(stream.captures()) << "the call has invalidated the capture";
  const Graph graph(stream.end_capture());
  for (const auto& [first, end] : {std::pair{100, 200}, {0, 300}, {120, 290}}) {
    leave_out(first, end);
    spoil();
    graph.launch(stream.get());
    stream.wait();
    const auto replayed = results();
    spoil();
    context->run(of_valid, tensors, stream.get());
    stream.wait();
    EXPECT_EQ(results(), replayed);
    const std::vector<double> grad = matrices[4].values();
    EXPECT_TRUE(std::all_of(grad.begin() + first * hidden, grad.begin() + end * hidden,
                            [](double value) { return value == 0; }));
  }
}

TEST_F(LinearGraphTest, AFirstCallIsCapturedWithAWorkspaceOfItsOwn) {
  const GpuStream stream;
  stream.begin_capture();
  EXPECT_THROW(context->run(operation, tensors, stream.get()), Unsupported);
  EXPECT_TRUE(stream.captures());
  static_cast<void>(stream.end_capture());

  const Memory memory =
      context->allocate(static_cast<std::size_t>(context->schedule(operation, tensors).workspace_bytes));
  tensors.workspace = {memory.data(), DType::u8, static_cast<std::int64_t>(memory.bytes())};
  stream.begin_capture();
  context->run(operation, tensors, stream.get());
  const Graph graph(stream.end_capture());
  graph.launch(stream.get());
  stream.wait();
  const auto replayed = results();
  spoil();
  context->run(operation, tensors, stream.get());
  stream.wait();
  EXPECT_EQ(results(), replayed);
}

}  // namespace
}  // namespace ce::test
