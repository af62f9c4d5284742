// What a call of a known problem costs: allocations and questions to the driver, counted on a driver that
// runs nothing. It has two GPUs of different models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ce/ce.hpp"
#include "ce/stats_file.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/nvrtc.hpp"
#include "tests/ce/counting_new.hpp"
#include "tests/ce/known_winner.hpp"
#include "tests/runtime/cuda_fake_driver.hpp"
#include "tests/tuner/fixture.hpp"
#include "tuner/ranking.hpp"

namespace ce::test {
namespace {

using runtime::cuda::Driver;
using testing::Each;
using testing::ElementsAre;
using testing::StartsWith;

constexpr std::int64_t rows = 192, columns = 128;  // a mean with its gradient takes three launches

FakeCuda& fake() { return fake_cuda(CE_FAKE_DRIVER); }
FakeCalls& calls() { return fake_cuda_calls(CE_FAKE_DRIVER); }

/// A GPU's primary context, current on this thread as long as this object lives.
class CurrentGpu {
 public:
  explicit CurrentGpu(int ordinal) : ordinal_(ordinal) {
    CUcontext context = nullptr;
    CE_CUDA_CHECK(driver_, cuDevicePrimaryCtxRetain(&context, ordinal_));
    CE_CUDA_CHECK(driver_, cuCtxPushCurrent(context));
  }
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;
  ~CurrentGpu() {
    CUcontext context = nullptr;
    static_cast<void>(driver_.cuCtxPopCurrent(&context));
    static_cast<void>(driver_.cuDevicePrimaryCtxRelease(ordinal_));
  }

 private:
  const Driver& driver_ = *Driver::get().driver;
  int ordinal_;
};

Tensor tensor(int gpu, int number, std::int64_t its_rows, std::int64_t its_columns,
              DType dtype = DType::f32) {
  constexpr std::uint64_t apart = rows * columns * 4;
  return {.data = fake_address(gpu == 0 ? of_gpu_0 : of_gpu_1, apart * static_cast<std::uint64_t>(number)),
          .dtype = dtype,
          .rows = its_rows,
          .columns = its_columns};
}
Softmax::Tensors softmax(int gpu = 0) {
  return {.input = tensor(gpu, 0, rows, columns), .output = tensor(gpu, 1, rows, columns)};
}
CrossEntropy::Tensors cross_entropy(int gpu = 0) {
  return {.logits = tensor(gpu, 0, rows, columns),
          .target = tensor(gpu, 1, rows, 1, DType::i64),
          .loss = tensor(gpu, 2, 1, 1),
          .grad = tensor(gpu, 3, rows, columns)};
}

/// What a thread asks the driver and allocates in a call.
struct Cost {
  std::vector<std::string_view> calls;
  int allocations = 0;
};
template <class Call>
Cost cost_of(const Call& call) {
  test::calls() = {};
  const int before = test::allocations();
  call();
  const int made = test::allocations() - before;
  return {test::calls().list(), made};
}

class HotPath : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Before anything in this process asks for the driver, which is opened once, or for a default Context.
    folder.emplace();
    ::setenv("CE_LIBCUDA", CE_FAKE_DRIVER, 1);
    ::setenv("CE_DB", file().c_str(), 1);
    ::unsetenv("CE_DEVICE");
    cache::Cache cache = cache::Cache::open(file());
    const generator::Problem forward{
        .operation = generator::Operation::softmax, .rows = rows, .columns = columns};
    generator::Problem mean{
        .operation = generator::Operation::cross_entropy, .rows = rows, .columns = columns};
    mean.reduction = Reduction::mean;
    mean.gradient = true;
    const generator::Problem backward{
        .operation = generator::Operation::softmax_backward, .rows = rows, .columns = columns};
    for (int gpu = 0; gpu < 2; ++gpu) {
      const auto device = runtime::open_cuda_device(gpu);
      const auto place = static_cast<std::size_t>(gpu);  // the second one has another winner
      for (const generator::Problem& problem : {forward, backward, mean}) {
        const generator::Config config = tuner::ranked_space(problem, device->model()).at(place);
        know_winner(cache, *device, problem, config);
        winners[gpu][problem.operation] = generator::to_text(config);
      }
    }
  }
  static void TearDownTestSuite() { folder.reset(); }

  static std::filesystem::path file() { return folder->path() / "ce.db"; }
  static ContextOptions options(int gpu = 0, Policy policy = Policy::lookup) {
    return {.device = gpu == 0 ? "cuda:0" : "cuda:1", .database = file(), .policy = policy};
  }
  /// A stream of the fake driver, which looks at nothing but the address.
  static Stream stream(std::uintptr_t number) { return reinterpret_cast<Stream>(0x1000 * number); }

  static inline std::optional<Folder> folder;
  static inline std::array<std::map<generator::Operation, std::string>, 2> winners;
};

TEST_F(HotPath, AKnownWinnerNeedsNoCompiler) {
  Context context(options());
  const Choice& choice = context.run(Softmax{}, softmax());
  EXPECT_EQ(choice.origin, Origin::database);
  EXPECT_EQ(choice.config, winners[0][generator::Operation::softmax]);
  context.run(CrossEntropy{}, cross_entropy());
  EXPECT_EQ(context.compiled(), 0);
  EXPECT_EQ(runtime::cuda::Nvrtc::if_opened(), nullptr);
}

TEST_F(HotPath, RunAsksForTheContextAndLaunches) {
  const CurrentGpu gpu(0);
  const auto call = [] { run(Softmax{}, softmax()); };
  call();
  const Cost warm = cost_of(call);
  EXPECT_THAT(warm.calls, ElementsAre("cuCtxGetCurrent", StartsWith("cuLaunchKernel")));
  EXPECT_EQ(warm.allocations, 0);
}

TEST_F(HotPath, ChecksWriteNoTextsWhereNothingIsWrong) {
  const CurrentGpu gpu(0);
  // Named at length, so that a text of them would not fit into a std::string without memory of its own.
  const SoftmaxBackward::Tensors tensors{.output = tensor(0, 1, rows, columns),
                                         .output_grad = tensor(0, 0, rows, columns),
                                         .input_grad = tensor(0, 2, rows, columns)};
  const auto call = [&] { run(SoftmaxBackward{}, tensors); };
  call();
  EXPECT_EQ(cost_of(call).allocations, 0);
}

TEST_F(HotPath, AWarmCallIsCheckedLikeTheFirst) {
  const CurrentGpu gpu(0);
  const Softmax::Tensors tensors = softmax();
  const auto call = [](const Softmax::Tensors& of) { run(Softmax{}, of); };
  call(tensors);
  call(tensors);
  Softmax::Tensors elsewhere{.input = tensor(0, 4, rows, columns), .output = tensor(0, 5, rows, columns)};
  call(elsewhere);
  EXPECT_EQ(fake().argument, reinterpret_cast<std::uint64_t>(elsewhere.input.data));
  EXPECT_EQ(cost_of([&] { call(elsewhere); }).allocations, 0);
  const auto refuse = [&](const void* from, void* to) {
    const int launches = fake().launches;
    elsewhere.input.data = from;
    elsewhere.output.data = to;
    EXPECT_THROW(call(elsewhere), InvalidArgument) << from << " to " << to;
    EXPECT_EQ(fake().launches, launches);
  };
  refuse(nullptr, tensors.output.data);
  refuse(tensors.input.data, static_cast<std::byte*>(tensors.output.data) + 2);
  refuse(static_cast<std::byte*>(tensors.output.data) + 16, tensors.output.data);
  refuse(tensors.input.data, fake_address(of_gpu_1));
  refuse(fake_address(pinned), tensors.output.data);
}

TEST_F(HotPath, OnlyAWorkspaceForAnotherOutputMakesTheCaptureMatter) {
  const CurrentGpu gpu(0);
  CrossEntropy::Tensors tensors = cross_entropy();
  const auto call = [&](Stream on) { run(CrossEntropy{}, tensors, on); };
  const auto launches = [](auto... before) {
    return ElementsAre(before..., StartsWith("cuLaunchKernel"), StartsWith("cuLaunchKernel"),
                       StartsWith("cuLaunchKernel"));
  };
  call(stream(1));
  const Cost warm = cost_of([&] { call(stream(1)); });
  EXPECT_THAT(warm.calls, launches("cuCtxGetCurrent"));
  EXPECT_EQ(warm.allocations, 0);
  tensors.loss = tensor(0, 4, 1, 1);
  EXPECT_THAT(cost_of([&] { call(stream(1)); }).calls, launches("cuCtxGetCurrent", "cuStreamIsCapturing"));
  // The default stream cannot be captured.
  EXPECT_THAT(cost_of([&] { call(nullptr); }).calls, launches("cuCtxGetCurrent"));
}

TEST_F(HotPath, APlanOnlyLaunches) {
  const CurrentGpu gpu(0);
  Context context(options());
  const Plan forward = context.prepare(Softmax{}, softmax());
  const Cost first = cost_of([&] { forward.run(stream(1)); });
  EXPECT_THAT(first.calls, ElementsAre("cuCtxGetCurrent", StartsWith("cuLaunchKernel")));
  EXPECT_EQ(first.allocations, 0);
  EXPECT_EQ(fake().argument, reinterpret_cast<std::uint64_t>(softmax().input.data));

  const Plan mean = context.prepare(CrossEntropy{}, cross_entropy());
  mean.run(stream(1));
  const Cost second = cost_of([&] { mean.run(stream(1)); });
  EXPECT_THAT(second.calls, ElementsAre("cuCtxGetCurrent", StartsWith("cuLaunchKernel"),
                                        StartsWith("cuLaunchKernel"), StartsWith("cuLaunchKernel")));
  EXPECT_EQ(second.allocations, 0);
}

TEST_F(HotPath, AThreadWithoutAContextGetsItForTheCall) {
  Context context(options());
  const auto call = [&] { context.run(CrossEntropy{}, cross_entropy()); };
  call();
  const Cost warm = cost_of(call);
  EXPECT_THAT(warm.calls,
              ElementsAre("cuCtxGetCurrent", "cuCtxPushCurrent_v2", StartsWith("cuLaunchKernel"),
                          StartsWith("cuLaunchKernel"), StartsWith("cuLaunchKernel"), "cuCtxPopCurrent_v2"));
}

TEST_F(HotPath, CapturedCallsHaveMemoryOfTheirOwn) {
  const CurrentGpu gpu(0);
  ContextOptions two_calls = options();
  two_calls.capture_bytes = 2048;  // 192 rows and the sums take less than 1024
  Context context(two_calls);
  CrossEntropy::Tensors tensors = cross_entropy();
  const auto call = [&] { context.run(CrossEntropy{}, tensors, stream(3)); };
  const Plan plan = context.prepare(CrossEntropy{}, tensors, stream(3));
  tensors.loss = tensor(0, 4, 1, 1);
  call();
  fake().captured_stream = stream(3);
  tensors.loss = tensor(0, 5, 1, 1);
  EXPECT_THAT(cost_of(call).calls, Not(testing::Contains(StartsWith("cuMemAlloc"))));
  plan.run(stream(3));
  tensors.loss = tensor(0, 6, 1, 1);
  EXPECT_THROW(call(), Unsupported);
  fake().captured_stream = nullptr;
  EXPECT_NO_THROW(call());
  EXPECT_NO_THROW(plan.run(stream(3)));
}

TEST_F(HotPath, EveryGpuHasItsOwnWinners) {
  for (int turn = 0; turn < 2; ++turn)
    for (int gpu = 0; gpu < 2; ++gpu) {
      const CurrentGpu current(gpu);
      EXPECT_EQ(default_context().device_name(), gpu == 0 ? "cuda:0" : "cuda:1");
      EXPECT_EQ(run(Softmax{}, softmax(gpu)).config, winners[gpu][generator::Operation::softmax]);
      EXPECT_EQ(run(CrossEntropy{}, cross_entropy(gpu)).config,
                winners[gpu][generator::Operation::cross_entropy]);
      EXPECT_THROW(run(Softmax{}, softmax(1 - gpu)), InvalidArgument);
    }
  EXPECT_NE(winners[0], winners[1]);
  // Where none is current, the first.
  EXPECT_EQ(&default_context(), [] {
    const CurrentGpu current(0);
    return &default_context();
  }());
  EXPECT_EQ(run(Softmax{}, softmax(0)).config, winners[0][generator::Operation::softmax]);
  EXPECT_THROW(run(Softmax{}, softmax(1)), InvalidArgument);
}

TEST_F(HotPath, PoliciesKnowTheWinnersOfTheirGpuAlone) {
  constexpr std::array policies{Policy::tune, Policy::lookup, Policy::frozen, Policy::background};
  const generator::Problem problem{
      .operation = generator::Operation::log_softmax, .rows = rows, .columns = columns};
  const auto model_of = [](int gpu) { return runtime::open_cuda_device(gpu)->model(); };
  // Two of one ranking: those of two models may have the same config in two places.
  const std::vector<generator::Config> ranked = tuner::ranked_space(problem, model_of(0));
  const auto config_of = [&](int gpu) { return ranked.at(2 + static_cast<std::size_t>(gpu)); };
  const auto call = [](Context& context, int gpu) {
    return context.run(LogSoftmax{}, {.input = softmax(gpu).input, .output = softmax(gpu).output});
  };
  const auto expect_own = [&](Context& context, int gpu) {
    const Choice choice = call(context, gpu);
    EXPECT_EQ(choice.origin, Origin::database);
    EXPECT_EQ(choice.config, generator::to_text(config_of(gpu)));
  };
  cache::Cache cache = cache::Cache::open(file());
  know_winner(cache, *runtime::open_cuda_device(0), problem, config_of(0));
  {
    Context first(options(0, Policy::frozen)), second(options(1, Policy::frozen));
    expect_own(first, 0);
    const int launches = fake().launches;
    EXPECT_THROW(call(second, 1), NotTuned);
    EXPECT_EQ(fake().launches, launches);
    expect_own(first, 0);
  }
  know_winner(cache, *runtime::open_cuda_device(1), problem, config_of(1));
  for (const Policy policy : policies) {
    SCOPED_TRACE(name(policy));
    Context first(options(0, policy)), second(options(1, policy));
    const auto use_both = [&] {
      for (int turn = 0; turn < 3; ++turn) {
        expect_own(first, 0);
        expect_own(second, 1);
      }
    };
    const auto current = [] {
      CUcontext context = nullptr;
      CE_CUDA_CHECK(*Driver::get().driver, cuCtxGetCurrent(&context));
      return context;
    };
    {
      std::vector<std::jthread> threads;
      for (int gpu = 0; gpu < 2; ++gpu)
        threads.emplace_back([&, gpu] {
          EXPECT_EQ(current(), nullptr);
          use_both();
          EXPECT_EQ(current(), nullptr);
          const CurrentGpu own(gpu);
          const CUcontext before = current();
          use_both();
          EXPECT_EQ(current(), before);
        });
    }
    EXPECT_EQ(first.compiled() + second.compiled(), 0);
  }
}

TEST_F(HotPath, CountsCallsOfEveryThread) {
  Context context(options());
  const Stats before = stats();
  const auto call_thrice = [&] {
    for (int turn = 0; turn < 3; ++turn) context.run(Softmax{}, softmax());
  };
  call_thrice();
  std::thread(call_thrice).join();  // its counts outlive it
  const Plan plan = context.prepare(Softmax{}, softmax());
  plan.run();
  EXPECT_THROW(context.run(Softmax{}, {}), InvalidArgument);
  const Stats after = stats();
  EXPECT_EQ(after.calls - before.calls, 3 + 3 + 1 + 1 + 1);
  EXPECT_EQ(after.known - before.known, 2 + 2 + 1) << "the first of each thread asks, and so does prepare()";
  EXPECT_EQ(after.errors - before.errors, 1);
  EXPECT_EQ(after.tuned, before.tuned);
  EXPECT_EQ(after.fallback, before.fallback);
}

/// It compiles where there is NVRTC, and else fails.
TEST_F(HotPath, CountsWhatGoesOnWithoutAWinner) {
  Context context(options());
  const Stats before = stats();
  bool compiles = true;
  try {
    context.run(LogSoftmax{}, {.input = tensor(0, 0, rows, 40), .output = tensor(0, 1, rows, 40)});
  } catch (const Error&) {
    compiles = false;
  }
  EXPECT_EQ(stats().errors - before.errors, compiles ? 0 : 1);
  EXPECT_EQ(stats().fallback - before.fallback, compiles ? 1 : 0);
  EXPECT_EQ(stats().compiled - before.compiled, static_cast<std::uint64_t>(context.compiled()));
}

/// Counting is for the calls of the process that made them.
TEST_F(HotPath, AChildOfForkCountsAnewAndLeavesItsFileAtItsEnd) {
  Context here(options());
  here.run(Softmax{}, softmax());
  const std::filesystem::path place = folder->path() / "stats-%p.prom";
  const pid_t child = ::fork();
  if (child == 0) {
    const ContextOptions own = options();
    std::construct_at(&folder);  // its end would take the folder of the parent with it
    ::setenv("CE_STATS", place.c_str(), 1);
    {
      Context context(own);
      context.run(Softmax{}, softmax());
      context.run(Softmax{}, softmax());
    }
    std::exit(stats().calls == 2 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::ifstream file(folder->path() / ("stats-" + std::to_string(child) + ".prom"));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(text, prometheus_text({.calls = 2, .known = 1}, child));
  for (const auto& entry : std::filesystem::directory_iterator(folder->path()))
    EXPECT_FALSE(entry.path().string().ends_with(".draft")) << entry.path();
}

TEST_F(HotPath, ThreadsDoNotMeet) {
  constexpr int threads = 8, turns = 200;
  std::vector<Plan> shared;
  for (int gpu = 0; gpu < 2; ++gpu) {
    const CurrentGpu current(gpu);
    shared.push_back(default_context().prepare(CrossEntropy{}, cross_entropy(gpu)));
  }
  const int before = fake().launches;
  {
    std::vector<std::jthread> running;
    for (int thread = 0; thread < threads; ++thread)
      running.emplace_back([thread, &shared] {
        const int gpu = thread % 2;
        const CurrentGpu current(gpu);
        Context& context = default_context();
        const Plan plan = context.prepare(Softmax{}, softmax(gpu));
        for (int turn = 0; turn < turns; ++turn) {
          run(Softmax{}, softmax(gpu), stream(1));
          run(CrossEntropy{}, cross_entropy(gpu), stream(1 + static_cast<std::uintptr_t>(turn % 40)));
          plan.run(stream(2));
          shared[static_cast<std::size_t>(gpu)].run(stream(1 + static_cast<std::uintptr_t>(turn % 3)));
        }
      });
  }
  EXPECT_EQ(fake().launches - before, threads * turns * (1 + 3 + 1 + 3));
}

}  // namespace
}  // namespace ce::test
