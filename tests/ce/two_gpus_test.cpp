// Two GPUs in one process: run() on both, from one thread and from two, under the policies.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "ce/error.hpp"
#include "tests/ce/fixture.hpp"
#include "tests/ce/gpu_fixture.hpp"
#include "tests/seed.hpp"

namespace ce::test {
namespace {

/// The calls of one GPU, with tensors in its memory.
class CallsOfAGpu {
 public:
  CallsOfAGpu(Context& context, std::uint64_t seed)
      : context_(context),
        softmax_(context, {.name = "", .dtype = bf16, .rows = 100, .columns = 1000}, seed),
        cross_entropy_(context, {.name = "", .dtype = f16, .rows = 100, .columns = 1000}, seed + 1) {}

  std::array<Choice, 2> run() {
    softmax_.spoil();
    cross_entropy_.spoil();
    const std::array choices{context_.run(Softmax{}, softmax_.tensors()),
                             context_.run(cross_entropy_.operation(), cross_entropy_.tensors())};
    context_.check();
    softmax_.expect_right();
    cross_entropy_.expect_right();
    return choices;
  }
  [[nodiscard]] const SoftmaxCall& softmax() const { return softmax_; }

 private:
  Context& context_;
  SoftmaxCall softmax_;
  CrossEntropyCall cross_entropy_;
};

CUcontext current_handle() {
  CUcontext context = nullptr;
  CE_CUDA_CHECK(*runtime::cuda::Driver::get().driver, cuCtxGetCurrent(&context));
  return context;
}

class TwoGpus : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure() && runtime::cuda_device_count() < 2)
      GTEST_SKIP() << "needs two GPUs";
  }
  [[nodiscard]] ContextOptions options_of(int gpu, Policy policy) const {
    ContextOptions chosen = options(policy);
    chosen.device = fmt::format("cuda:{}", gpu);
    return chosen;
  }
};

class TwoGpusUnderAPolicy : public TwoGpus, public testing::WithParamInterface<std::tuple<Policy, int>> {};

TEST_P(TwoGpusUnderAPolicy, BothAreRight) {
  const auto [policy, threads] = GetParam();
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  const bool is_known = policy != Policy::tune;
  if (is_known)
    for (int gpu = 0; gpu < 2; ++gpu) {
      Context context(options_of(gpu, Policy::tune));
      CallsOfAGpu(context, seed).run();
    }

  Context first(options_of(0, policy)), second(options_of(1, policy));
  CallsOfAGpu of_first(first, seed + 2), of_second(second, seed + 4);
  const auto use = [&](CallsOfAGpu& calls) {
    for (const Choice& choice : calls.run()) {
      EXPECT_TRUE(!is_known || choice.origin == Origin::database) << choice.reason;
    }
  };
  constexpr int turns = 20;
  // The thread's own context is of the other GPU, or of none: neither matters, and it stays.
  if (threads == 1) {
    const CurrentGpu current(1);
    for (int turn = 0; turn < turns; ++turn) {
      use(of_first);
      use(of_second);
    }
    EXPECT_EQ(current_handle(), current.handle());
  } else {
    const auto work = [&](int gpu_of_thread, CallsOfAGpu& calls) {
      return std::jthread([&use, &calls, gpu_of_thread] {
        EXPECT_EQ(current_handle(), nullptr);
        for (int turn = 0; turn < turns; ++turn) {
          std::optional<CurrentGpu> current;
          if (turn % 2 == 0) current.emplace(gpu_of_thread);
          use(calls);
        }
        EXPECT_EQ(current_handle(), nullptr);
      });
    };
    const std::jthread one = work(1, of_first), other = work(0, of_second);
  }
  EXPECT_TRUE(!is_known || first.compiled() + second.compiled() == 0);
}
INSTANTIATE_TEST_SUITE_P(All, TwoGpusUnderAPolicy,
                         testing::Combine(testing::Values(Policy::tune, Policy::lookup, Policy::frozen),
                                          testing::Values(1, 2)),
                         [](const auto& of) {
                           return fmt::format("{}_{}", name(std::get<0>(of.param)),
                                              std::get<1>(of.param) == 1 ? "one_thread" : "two_threads");
                         });

TEST_F(TwoGpus, FrozenMissesOnBothAndLookupFallsBack) {
  for (int gpu = 0; gpu < 2; ++gpu) {
    Context frozen(options_of(gpu, Policy::frozen)), lookup(options_of(gpu, Policy::lookup));
    CallsOfAGpu calls(lookup, 1);
    EXPECT_THROW(frozen.run(Softmax{}, calls.softmax().tensors()), NotTuned);
    for (const Choice& choice : calls.run()) EXPECT_EQ(choice.origin, Origin::fallback) << choice.reason;
  }
}

TEST_F(TwoGpus, TheFunctionTakesTheCurrentOne) {
  const ScopedEnvironment device("CE_DEVICE", nullptr), policy("CE_POLICY", "lookup");
  const ScopedEnvironment database("CE_DB", file().string());
  for (int turn = 0; turn < 2; ++turn)
    for (int gpu = 0; gpu < 2; ++gpu) {
      const CurrentGpu current(gpu);
      EXPECT_EQ(default_context().device_name(), fmt::format("cuda:{}", gpu));
      SoftmaxCall call(default_context(), {.name = ""}, 1);
      run(Softmax{}, call.tensors());
      default_context().synchronize();
      call.expect_right();
      EXPECT_EQ(current_handle(), current.handle());
    }
}

}  // namespace
}  // namespace ce::test
