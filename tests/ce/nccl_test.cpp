// Two GPUs that share the classes through NCCL, a thread for each: the results of one GPU with all classes, eager and as a
// CUDA graph.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <thread>

#include "ce/error.hpp"
#include "tests/ce/fixture.hpp"
#include "tests/ce/gpu_fixture.hpp"
#include "tests/seed.hpp"

namespace ce::test {
namespace {

class Nccl : public ContextTest {
 protected:
  static constexpr int ranks = 2;
  static constexpr std::int64_t rows = 64, columns = 5000, classes = ranks * columns;

  void SetUp() override {
    ContextTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (runtime::cuda_device_count() < ranks) GTEST_SKIP() << "needs two GPUs";
    void* library = dlopen("libnccl.so.2", RTLD_NOW);
    if (library == nullptr) GTEST_SKIP() << "needs libnccl.so.2";
    const auto init = reinterpret_cast<int (*)(void**, int, const int*)>(dlsym(library, "ncclCommInitAll"));
    const std::array<int, ranks> devices{0, 1};
    ASSERT_EQ(init(comms_.data(), ranks, devices.data()), 0);
  }

  /// Calls `run(rank)` for each rank on a thread of its own.
  template <class Result>
  static std::array<Result, ranks> on_all(const std::function<Result(int)>& run) {
    std::array<Result, ranks> results;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        try {
          results.at(static_cast<std::size_t>(rank)) = run(rank);
        } catch (const Error& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    return results;
  }
  [[nodiscard]] ContextOptions options_of(int gpu) const {
    ContextOptions chosen = options(Policy::lookup);
    chosen.device = "cuda:" + std::to_string(gpu);
    return chosen;
  }
  [[nodiscard]] Shard shard_of(int rank) const {
    return {.communicator = nccl_communicator(comms_.at(static_cast<std::size_t>(rank))),
            .first_class = rank * columns,
            .classes = classes};
  }

  std::array<void*, ranks> comms_{};
};

TEST_F(Nccl, RanksHaveTheResultsOfOneWithAllClasses) {
  const std::uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  const std::vector<double> values = random_values(rows * classes, random);
  std::vector<std::int64_t> targets(rows);
  for (std::int64_t& target : targets) target = static_cast<std::int64_t>(random() % classes);
  targets[3] = -100;
  const CrossEntropy operation{.label_smoothing = 0.1f, .z_loss = 1e-3f};

  struct Result {
    std::vector<double> loss, lse, grad;
  };
  const auto run = [&](int gpu, std::int64_t first, std::int64_t count, bool shared) {
    Context context(options_of(gpu));
    Matrix logits(context, bf16, rows, count), grad(context, bf16, rows, count),
        target(context, DType::i64, rows, 1), loss(context, DType::f32, 1, 1),
        lse(context, DType::f32, rows, 1);
    std::vector<double> own;
    for (std::int64_t row = 0; row < rows; ++row)
      own.insert(own.end(), values.begin() + row * classes + first,
                 values.begin() + row * classes + first + count);
    logits.set(own);
    target.set_indices(targets);
    const CrossEntropy::Tensors tensors{.logits = logits.tensor(),
                                        .target = target.tensor(),
                                        .loss = loss.tensor(),
                                        .grad = grad.tensor(),
                                        .lse = lse.tensor()};
    if (shared)
      for (int i = 0; i < 3; ++i) context.run(operation, tensors, shard_of(gpu));
    else
      context.run(operation, tensors);
    context.synchronize();
    return Result{loss.values(), lse.values(), grad.values()};
  };
  const Result whole = run(0, 0, classes, false);
  const auto parts = on_all<Result>([&](int rank) { return run(rank, rank * columns, columns, true); });
  for (int rank = 0; rank < ranks; ++rank) {
    const Result& part = parts.at(static_cast<std::size_t>(rank));
    expect_near(part.loss, whole.loss, 2e-5, 1e-6, "loss");
    expect_near(part.lse, whole.lse, 1e-6, 4e-6, "lse");
    EXPECT_EQ(part.loss, parts[0].loss);
    EXPECT_EQ(part.lse, parts[0].lse);
    std::vector<double> grad;
    for (std::int64_t row = 0; row < rows; ++row)
      grad.insert(grad.end(), whole.grad.begin() + row * classes + rank * columns,
                  whole.grad.begin() + row * classes + (rank + 1) * columns);
    expect_near(part.grad, grad, 3 * rounding(bf16), 1e-7, "grad");
  }
}

TEST_F(Nccl, ALinearLayerHasTheResultsOfOneWithAllClasses) {
  constexpr std::int64_t tokens = 256, hidden = 64;
  std::mt19937_64 random(test_seed());
  const std::vector<double> x_values = random_values(tokens * hidden, random),
                            w_values = random_values(classes * hidden, random);
  std::vector<std::int64_t> targets(tokens);
  for (std::int64_t& target : targets) target = static_cast<std::int64_t>(random() % classes);
  targets[3] = -100;
  const LinearCrossEntropy operation{.cross_entropy = {.label_smoothing = 0.1f, .logit_scale = 0.125f},
                                     .chunk_tokens = 100};
  struct Result {
    std::vector<double> loss, hidden_grad, weight_grad;
  };
  const auto run = [&](int gpu, std::int64_t first, std::int64_t count, bool shared) {
    Context context(options_of(gpu));
    Matrix x(context, bf16, tokens, hidden), w(context, bf16, count, hidden),
        target(context, DType::i64, tokens, 1), loss(context, DType::f32, 1, 1),
        of_x(context, bf16, tokens, hidden), of_w(context, DType::f32, count, hidden);
    x.set(x_values);
    w.set({w_values.begin() + first * hidden, w_values.begin() + (first + count) * hidden});
    target.set_indices(targets);
    const LinearCrossEntropy::Tensors tensors{.hidden = x.tensor(),
                                              .weight = w.tensor(),
                                              .target = target.tensor(),
                                              .loss = loss.tensor(),
                                              .hidden_grad = of_x.tensor(),
                                              .weight_grad = of_w.tensor()};
    if (shared)
      for (int i = 0; i < 2; ++i) context.run(operation, tensors, shard_of(gpu));
    else
      context.run(operation, tensors);
    context.synchronize();
    return Result{loss.values(), of_x.values(), of_w.values()};
  };
  const Result whole = run(0, 0, classes, false);
  const auto parts = on_all<Result>([&](int rank) { return run(rank, rank * columns, columns, true); });
  std::vector<double> sum(whole.hidden_grad.size());
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const Result& part = parts.at(rank);
    ASSERT_EQ(part.weight_grad.size(), static_cast<std::size_t>(columns * hidden)) << "it has failed";
    expect_near(part.loss, whole.loss, 2e-5, 1e-6, "loss");
    EXPECT_EQ(part.loss, parts[0].loss);
    const auto begin = whole.weight_grad.begin() + static_cast<std::int64_t>(rank) * columns * hidden;
    expect_near(part.weight_grad, {begin, begin + columns * hidden}, 3 * rounding(bf16), 1e-6, "weight_grad");
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part.hidden_grad[i];
  }
  // Parts of up to some 2e-3, of which each is rounded, cancel.
  expect_near(sum, whole.hidden_grad, 4 * rounding(bf16), 4e-5, "the ranks' sum of hidden_grad");
}

}  // namespace
}  // namespace ce::test
