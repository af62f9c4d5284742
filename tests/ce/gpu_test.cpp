// What only a GPU can show of a Context: other users of CUDA in the same process, streams, kinds of memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "ce/error.hpp"
#include "tests/ce/child.hpp"
#include "tests/ce/fixture.hpp"
#include "tests/ce/gpu_fixture.hpp"
#include "tests/seed.hpp"

namespace ce::test {
namespace {

using testing::HasSubstr;

class GpuTest : public ContextTest {
 protected:
  [[nodiscard]] static CUcontext current_context() {
    CUcontext context = nullptr;
    CE_CUDA_CHECK(*runtime::cuda::Driver::get().driver, cuCtxGetCurrent(&context));
    return context;
  }

  /// The whole life of a Context.
  void use_everything(Policy policy) {
    Context context(options(policy));
    CrossEntropyCall call(context, {.name = "", .columns = 64}, 1);
    context.run(call.operation(), call.tensors());
    context.check();
    call.expect_right();
    const Plan plan = context.prepare(call.operation(), call.tensors());
    plan.run();
    context.synchronize();
    call.expect_right();
  }
};

TEST_F(GpuTest, AThreadWithoutAContextStaysWithout) {
  std::thread([this] {
    EXPECT_EQ(current_context(), nullptr);
    use_everything(Policy::tune);
    EXPECT_EQ(current_context(), nullptr);
  }).join();
}

TEST_F(GpuTest, TheCurrentContextStaysCurrent) {
  const CurrentGpu gpu;
  use_everything(Policy::lookup);
  EXPECT_EQ(current_context(), gpu.handle());
}

TEST_F(GpuTest, TheDefaultDeviceIsTheCurrentOne) {
  const ScopedEnvironment unset("CE_DEVICE", nullptr);
  const CurrentGpu gpu;
  ContextOptions chosen = options(Policy::lookup);
  chosen.device.clear();
  EXPECT_EQ(Context(chosen).device_name(), "cuda:0");
}

TEST_F(GpuTest, StreamsDoNotShareWorkspaces) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const CurrentGpu gpu;
  Context context(options(Policy::lookup));
  const GpuStream first, second;
  const CrossEntropyCase mean{.name = "", .dtype = DType::bf16, .rows = 6000, .columns = 512};
  CrossEntropyCall one(context, mean, seed), other(context, mean, seed + 1);
  std::vector<std::byte> of_one, of_other;
  for (int turn = 0; turn < 5; ++turn) {
    one.spoil();
    other.spoil();
    for (int call = 0; call < 20; ++call) {
      context.run(one.operation(), one.tensors(), first.get());
      context.run(other.operation(), other.tensors(), second.get());
    }
    context.check(first.get());
    context.check(second.get());
    if (turn == 0) {
      one.expect_right();
      other.expect_right();
      of_one = one.result();
      of_other = other.result();
    }
    EXPECT_EQ(one.result(), of_one);
    EXPECT_EQ(other.result(), of_other);
  }
}

TEST_F(GpuTest, CallsOfOneStreamFollowEachOther) {
  const CurrentGpu gpu;
  Context context(options(Policy::lookup));
  const GpuStream stream;
  // The workspace grows between two calls that are both still to run.
  CrossEntropyCall small(context, {.name = "", .rows = 100, .columns = 64}, 1);
  CrossEntropyCall large(context, {.name = "", .rows = 50000, .columns = 64}, 2);
  for (int turn = 0; turn < 3; ++turn) {
    context.run(small.operation(), small.tensors(), stream.get());
    context.run(large.operation(), large.tensors(), stream.get());
  }
  context.check(stream.get());
  small.expect_right();
  large.expect_right();
}

TEST_F(GpuTest, TakesManagedMemoryAndRefusesPinned) {
  const CurrentGpu gpu;
  Context context(options(Policy::lookup));
  constexpr std::size_t bytes = std::size_t{4} * 100 * sizeof(float);
  const runtime::cuda::Driver& driver = *runtime::cuda::Driver::get().driver;
  CUdeviceptr managed = 0;
  void* pinned = nullptr;
  driver.check(runtime::cuda::driver_function<CUresult(CUdeviceptr*, std::size_t, unsigned)>(
                   "cuMemAllocManaged")(&managed, bytes, CU_MEM_ATTACH_GLOBAL),
               "cuMemAllocManaged");
  driver.check(runtime::cuda::driver_function<CUresult(void**, std::size_t, unsigned)>("cuMemHostAlloc")(
                   &pinned, bytes, 0),
               "cuMemHostAlloc");
  auto* values = reinterpret_cast<float*>(managed);
  std::fill_n(values, 400, 2.f);
  const Tensor in_managed{.data = values, .rows = 4, .columns = 100};
  context.run(Softmax{}, {.input = in_managed, .output = in_managed});
  context.synchronize();
  for (int i = 0; i < 400; ++i) ASSERT_NEAR(values[i], 0.01f, 1e-6f) << i;

  Tensor in_pinned = in_managed;
  in_pinned.data = pinned;
  try {
    context.run(Softmax{}, {.input = in_managed, .output = in_pinned});
    ADD_FAILURE() << "pinned host memory was taken";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "output.data");
    EXPECT_THAT(error.value(), HasSubstr("in host memory"));
  }
  driver.check(driver.cuMemFree(managed), "cuMemFree");
  driver.check(runtime::cuda::driver_function<CUresult(void*)>("cuMemFreeHost")(pinned), "cuMemFreeHost");
}

TEST_F(GpuTest, RefusesTheMemoryOfAnotherGpu) {
  if (runtime::cuda_device_count() < 2) GTEST_SKIP() << "needs two GPUs";
  Context context(options(Policy::lookup));
  ContextOptions of_other = options(Policy::lookup);
  of_other.device = "cuda:1";
  Context other(of_other);
  SoftmaxCall call(other, {.name = ""}, 1);
  try {
    context.run(Softmax{}, call.tensors());
    ADD_FAILURE() << "the memory of another GPU was taken";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "input.data");
    EXPECT_THAT(error.value(), HasSubstr("another device"));
    EXPECT_THAT(error.expected(), HasSubstr("cuda:0"));
  }
  other.run(Softmax{}, call.tensors());
  other.synchronize();
  call.expect_right();
}

TEST_F(GpuTest, AWarmDatabaseNeedsNoCompiler) {
  const ChildResult cold = run_in_a_child(file());
  ASSERT_EQ(cold.status, 0) << cold.output;
  const ScopedEnvironment none("CE_NVRTC", "/nonexistent/libnvrtc.so");
  const ChildResult warm = run_in_a_child(file());
  EXPECT_EQ(warm.status, 0);
  EXPECT_EQ(warm.output, "database 0\n");
  const ChildResult empty = run_in_a_child(folder() / "empty.db");
  EXPECT_EQ(empty.status, 2);
  EXPECT_THAT(empty.output, testing::StartsWith("unsupported: "));
  EXPECT_THAT(empty.output, HasSubstr("CE_NVRTC"));
}

}  // namespace
}  // namespace ce::test
