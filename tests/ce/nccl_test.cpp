// Two GPUs that share the classes through NCCL, a thread for each: the results of one GPU with all classes, eager and as a
// CUDA graph.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
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
    ContextOptions chosen = options(Policy::lookup);
    chosen.device = "cuda:" + std::to_string(gpu);
    Context context(chosen);
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
      for (int i = 0; i < 3; ++i)
        context.run(operation, tensors,
                    Shard{.communicator = nccl_communicator(comms_.at(static_cast<std::size_t>(gpu))),
                          .first_class = first,
                          .classes = classes});
    else
      context.run(operation, tensors);
    context.synchronize();
    return Result{loss.values(), lse.values(), grad.values()};
  };
  const Result whole = run(0, 0, classes, false);
  std::array<Result, ranks> parts;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        parts.at(static_cast<std::size_t>(rank)) = run(rank, rank * columns, columns, true);
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
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

}  // namespace
}  // namespace ce::test
