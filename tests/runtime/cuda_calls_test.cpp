// How the CUDA device talks to the driver, seen from a driver that needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "ce/error.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/seen_memory.hpp"
#include "tests/runtime/cuda_fake_driver.hpp"

namespace ce::runtime::cuda {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

// Before anything in this process asks for the driver, which is opened once.
const int replaced = setenv("CE_LIBCUDA", CE_FAKE_DRIVER, 1);

FakeCuda& fake() { return fake_cuda(CE_FAKE_DRIVER); }
FakeCalls& fake_calls() { return fake_cuda_calls(CE_FAKE_DRIVER); }

constexpr const char cubin[] = "\177ELF and the rest";
std::span<const std::byte> cubin_bytes() { return std::as_bytes(std::span(cubin)); }

class CudaCallsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(replaced, 0);
    fake() = {};
    device_ = open_cuda_device(0);
  }
  /// Whatever a test did, nothing stays behind.
  void TearDown() override {
    device_.reset();
    EXPECT_EQ(fake().primary_contexts, 0);
    EXPECT_EQ(fake().modules, 0);
    EXPECT_EQ(fake().allocations, 0);
    EXPECT_EQ(fake().streams, 0);
    EXPECT_EQ(fake().events, 0);
    EXPECT_EQ(fake().pushed, fake().popped);
  }
  static CUcontext current() {
    CUcontext context = nullptr;
    CE_CUDA_CHECK(*Driver::get().driver, cuCtxGetCurrent(&context));
    return context;
  }
  void use_everything() {
    const auto module = device_->load(cubin_bytes());
    const Function work = module->function("work");
    EXPECT_EQ(module->resources(work).registers, 40);
    EXPECT_EQ(module->resources(work).shared_bytes, 1024);
    const Stream stream = device_->trial_stream();
    Buffer buffer(*device_, 8);
    unsigned char bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    device_->upload(buffer.data(), bytes, 8);
    device_->copy(buffer.data(), buffer.bytes() + 4, 4, stream);
    device_->fill(buffer.bytes() + 4, 9, 4, stream);
    device_->reset_eviction_priority(fake_address(of_gpu_0), 128, stream);
    device_->download(bytes, buffer.data(), 8, stream);
    device_->synchronize(stream);
    EXPECT_THAT(bytes, ::testing::ElementsAre(5, 6, 7, 8, 9, 9, 9, 9));
    device_->download(bytes, buffer.data(), 4);
    device_->launch(work, {}, nullptr, 0, stream);
    EXPECT_TRUE(device_->fits(work, {.blocks = 2, .threads = 64, .cluster = 2}));
    EXPECT_EQ(device_->free_bytes(), 1 << 20);
    EXPECT_FALSE(device_->capturing(stream));
    EXPECT_EQ(device_->pointer_kind(bytes), PointerKind::host);
    EXPECT_FALSE(device_->environment().empty());
    const auto launch = [&] { device_->launch(work, {}, nullptr, 0, stream); };
    EXPECT_THAT(device_->time(3, launch, launch), Each(FloatNear(5, 0.01f)));
  }

  std::unique_ptr<Device> device_;
};

TEST_F(CudaCallsTest, AThreadWithoutAContextStaysWithout) {
  use_everything();
  EXPECT_EQ(current(), nullptr);
  EXPECT_EQ(current_cuda_device(), std::nullopt);
}

TEST_F(CudaCallsTest, AForeignContextStaysCurrent) {
  const Driver& driver = *Driver::get().driver;
  int other = 0;
  auto* foreign = reinterpret_cast<CUcontext>(&other);
  CE_CUDA_CHECK(driver, cuCtxPushCurrent(foreign));
  use_everything();
  EXPECT_EQ(current(), foreign);
  EXPECT_EQ(current_cuda_device(), 1);
  CE_CUDA_CHECK(driver, cuCtxPopCurrent(&foreign));
}

TEST_F(CudaCallsTest, NothingIsPushedWhereTheContextIsCurrent) {
  const Driver& driver = *Driver::get().driver;
  CUcontext primary = nullptr;
  CE_CUDA_CHECK(driver, cuDevicePrimaryCtxRetain(&primary, 0));
  CE_CUDA_CHECK(driver, cuCtxPushCurrent(primary));
  use_everything();
  EXPECT_EQ(fake().pushed, 1);
  EXPECT_EQ(current_cuda_device(), 0);
  CE_CUDA_CHECK(driver, cuCtxPopCurrent(&primary));
  CE_CUDA_CHECK(driver, cuDevicePrimaryCtxRelease(0));
}

TEST_F(CudaCallsTest, AllOfItIsAllowedWhileAnotherThreadCaptures) {
  fake().global_capture = true;
  use_everything();
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CE_CUDA_CHECK(*Driver::get().driver, cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL) << "the thread's own mode is back";
  CE_CUDA_CHECK(*Driver::get().driver, cuThreadExchangeStreamCaptureMode(&mode));
}

TEST_F(CudaCallsTest, LaunchPassesGeometryAndArguments) {
  const auto module = device_->load(cubin_bytes());
  const Function work = module->function("work");
  const std::uint64_t argument = 0x1234567890;
  device_->launch(work, {.blocks = 7, .threads = 96, .shared_bytes = 100}, &argument, sizeof argument,
                  nullptr);
  EXPECT_EQ(fake().blocks, 7);
  EXPECT_EQ(fake().threads, 96);
  EXPECT_EQ(fake().cluster, 1);
  EXPECT_EQ(fake().shared_bytes, 100);
  EXPECT_EQ(fake().argument, argument);
  device_->launch(work, {.blocks = 8, .threads = 32, .cluster = 4, .shared_bytes = 200}, nullptr, 0, nullptr);
  EXPECT_EQ(fake().blocks, 8);
  EXPECT_EQ(fake().threads, 32);
  EXPECT_EQ(fake().cluster, 4);
  EXPECT_EQ(fake().shared_bytes, 200);
  EXPECT_EQ(fake().argument, 0);
  EXPECT_EQ(fake().launches, 2);
}

TEST_F(CudaCallsTest, EvictionPrioritiesAreThoseOfWholeLines) {
  const auto reset = [&](std::uint64_t offset, std::size_t bytes) {
    fake().launches = 0;
    device_->reset_eviction_priority(fake_address(of_gpu_0, offset), bytes, device_->trial_stream());
    return fake().launches == 1 ? static_cast<int>(fake().blocks * fake().threads) : 0;
  };
  constexpr int block = 256;
  EXPECT_EQ(reset(0, 0), 0);
  EXPECT_EQ(reset(0, 127), 0);
  EXPECT_EQ(reset(0, 128), block);
  EXPECT_EQ(reset(1, 254), 0);
  EXPECT_EQ(reset(1, 255), block);
  EXPECT_EQ(fake().lines, 1);
  EXPECT_EQ(fake().argument, reinterpret_cast<std::uint64_t>(fake_address(of_gpu_0, 128)));
  EXPECT_EQ(reset(0, block * 128 + 127), block);
  EXPECT_EQ(fake().lines, block);
  EXPECT_EQ(reset(0, block * 128 + 128), 2 * block);
  EXPECT_EQ(fake().lines, block + 1);
  EXPECT_EQ(fake().argument, reinterpret_cast<std::uint64_t>(fake_address(of_gpu_0)));
  EXPECT_EQ(fake().modules, 1);
}

TEST_F(CudaCallsTest, WithoutPoliciesOfL2ThereIsNothingToReset) {
  fake().capability = 75;
  device_ = open_cuda_device(0);
  device_->reset_eviction_priority(fake_address(of_gpu_0), 1 << 20, nullptr);
  fake().capability = 80;
  fake().ptx_result = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  device_ = open_cuda_device(0);
  device_->reset_eviction_priority(fake_address(of_gpu_0), 1 << 20, nullptr);
  EXPECT_EQ(fake().launches, 0);
  EXPECT_EQ(fake().modules, 0);
  fake().ptx_result = 0;
  device_ = open_cuda_device(0);
  device_->reset_eviction_priority(fake_address(of_gpu_0), 1 << 20, nullptr);
  EXPECT_EQ(fake().launches, 1) << "of capability 8.0 on there is";
}

TEST_F(CudaCallsTest, FitsKnowsTheLimits) {
  const auto module = device_->load(cubin_bytes());
  const Function work = module->function("work");
  const auto fits = [&](const Launch& launch) { return device_->fits(work, launch); };
  EXPECT_TRUE(fits({.blocks = 1, .threads = 512, .shared_bytes = 232448 - 1024}));
  EXPECT_FALSE(fits({.blocks = 1, .threads = 513}));
  EXPECT_FALSE(fits({.blocks = 1, .threads = 32, .shared_bytes = 232448 - 1023}));
  EXPECT_FALSE(fits({.blocks = 1, .threads = 0}));
  EXPECT_TRUE(fits({.blocks = 32, .threads = 32, .cluster = 16}));
  EXPECT_FALSE(fits({.blocks = 31, .threads = 32, .cluster = 16}));
  EXPECT_FALSE(fits({.blocks = 32, .threads = 32, .cluster = 32}));
}

TEST_F(CudaCallsTest, ClustersNeedCapabilityNine) {
  fake().capability = 89;
  device_ = open_cuda_device(0);
  const auto module = device_->load(cubin_bytes());
  EXPECT_FALSE(device_->fits(module->function("work"), {.blocks = 2, .threads = 32, .cluster = 2}));
}

TEST_F(CudaCallsTest, SamplesAreTakenOneAtATime) {
  const auto module = device_->load(cubin_bytes());
  const Function work = module->function("work");
  int before = 0, timed = 0;
  const std::vector<float> times = device_->time(
      100, [&] { ++before; },
      [&] {
        ++timed;
        device_->launch(work, {}, nullptr, 0, device_->trial_stream());
      });
  EXPECT_EQ(before, 100);
  EXPECT_EQ(timed, 100);
  ASSERT_EQ(times.size(), 100);
  EXPECT_THAT(times, Each(FloatNear(5, 0.01f)));
  EXPECT_EQ(fake().synchronised, 100) << "nothing is behind a sample";
}

/// Whatever was launched on the stream before, by whom, and however many kernels a sample launches. The driver sets and
/// copies memory with launches of its own.
TEST_F(CudaCallsTest, SamplesBeginWithEachOfFourLaunchesInTurn) {
  const auto module = device_->load(cubin_bytes());
  const Function work = module->function("work");
  const auto launch = [&](Stream stream) { device_->launch(work, {}, nullptr, 0, stream); };
  const Stream timed_stream = device_->trial_stream();
  int of_others = 0, of_the_driver = 0;
  for (int kernels_before = 0; kernels_before < 9; ++kernels_before) {
    launch(timed_stream);
    device_->reset_eviction_priority(fake_address(of_gpu_0), 128, timed_stream);
    std::array<std::byte, 2> memory{};
    const auto set_and_copy = [&](Stream stream) {
      device_->fill(&memory[0], 0, 1, stream);
      device_->copy(&memory[1], &memory[0], 1, stream);
      if (stream == timed_stream) of_the_driver += 2;
    };
    set_and_copy(timed_stream);
    set_and_copy(nullptr);
    launch(nullptr);
    device_->reset_eviction_priority(fake_address(of_gpu_0), 128, nullptr);
    of_others += 2;
    std::vector<int> number;
    static_cast<void>(device_->time(
        6,
        [&] {
          for (int i = 0; i < kernels_before; ++i) launch(timed_stream);
          if (kernels_before == 3) set_and_copy(timed_stream);
        },
        [&] {
          number.push_back((fake().launches + fake().delays + of_the_driver - of_others) % 4);
          for (int i = 0; i < 1 + kernels_before % 3; ++i) launch(timed_stream);
        }));
    number.erase(number.begin());  // how many kernels come before it was not known yet
    EXPECT_THAT(number, ElementsAre(1, 2, 3, 0, 1)) << kernels_before << " kernels before";
  }
}

/// Where the host was slow once, the next delays are long, and fall slowly.
TEST_F(CudaCallsTest, ADelayCoversTheEnqueueingOfEachSample) {
  std::vector<std::uint64_t> delays;
  const auto samples = device_->time(
      3,
      [&] {
        delays.push_back(fake().delay_ns);
        if (delays.size() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(4));
      },
      [] {});
  EXPECT_EQ(samples.size(), 3);
  EXPECT_THAT(delays, ElementsAre(500'000, 5'000'000, AllOf(Ge(2'500'000), Le(5'000'000))));
}

TEST_F(CudaCallsTest, TimingWorksWithoutThePtxCompiler) {
  fake().ptx_result = CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
  EXPECT_EQ(device_
                ->time(
                    2, [] {}, [] {})
                .size(),
            2);
}

TEST_F(CudaCallsTest, AFaultIsNotTakenForAMissingPtxCompiler) {
  fake().ptx_result = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_THROW(device_->reset_eviction_priority(fake_address(of_gpu_0), 128, nullptr), DeviceError);
  EXPECT_THROW(static_cast<void>(device_->time(
                   2, [] {}, [] {})),
               DeviceError);
  fake().ptx_result = 0;
  device_->reset_eviction_priority(fake_address(of_gpu_0), 128, nullptr);
  EXPECT_EQ(fake().launches, 1);
}

TEST_F(CudaCallsTest, AnExceptionInACallbackLeavesNothingBehind) {
  EXPECT_THROW(static_cast<void>(device_->time(
                   2, [] {}, [] { throw std::runtime_error("stop"); })),
               std::runtime_error);
  EXPECT_EQ(current(), nullptr);
}

TEST_F(CudaCallsTest, PointersHaveTheirKinds) {
  EXPECT_EQ(device_->pointer_kind(nullptr), PointerKind::host);
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(device_->pointer_kind(fake_address(of_gpu_0)), PointerKind::device);
    EXPECT_EQ(device_->pointer_kind(fake_address(managed)), PointerKind::managed);
    EXPECT_EQ(device_->pointer_kind(fake_address(pinned)), PointerKind::host);
    EXPECT_EQ(device_->pointer_kind(fake_address(of_gpu_1)), PointerKind::other_device);
  }
}

TEST_F(CudaCallsTest, OnlyMemoryOfTheDeviceIsRemembered) {
  const auto queries = [&](FakeGranule granule, std::uint64_t offset = 0) {
    fake_calls() = {};
    static_cast<void>(device_->pointer_kind(fake_address(granule, offset)));
    return std::ranges::count(fake_calls().list(), std::string_view("cuPointerGetAttributes"));
  };
  EXPECT_EQ(queries(of_gpu_0), 1);
  EXPECT_EQ(queries(of_gpu_0, 12345), 0);
  EXPECT_EQ(queries(of_gpu_0, (1 << 21) - 1), 0);
  for (int turn = 0; turn < 2; ++turn)
    for (const FakeGranule granule : {managed, pinned, of_gpu_1}) EXPECT_EQ(queries(granule), 1);
  const auto other = open_cuda_device(1);
  EXPECT_EQ(other->pointer_kind(fake_address(of_gpu_0)), PointerKind::other_device);
  // Memory that is freed may come back as something else.
  device_->release(device_->allocate(8));
  EXPECT_EQ(queries(of_gpu_0), 1);
}

TEST(SeenMemory, HoldsManyGranulesAndForgetsThemAllAtOnce) {
  SeenMemory seen;
  std::mt19937_64 engine(1);
  std::vector<const void*> pointers(20'000);
  for (const void*& pointer : pointers) pointer = reinterpret_cast<const void*>(engine() >> 16);
  const auto known = [&](std::size_t first) {
    return std::count_if(pointers.begin(), pointers.begin() + static_cast<std::ptrdiff_t>(first),
                         [&](const void* pointer) { return seen.contains(pointer); });
  };
  constexpr std::size_t few = 1000;
  for (std::size_t i = 0; i < few; ++i) seen.add(pointers[i]);
  EXPECT_GE(known(few), few * 99 / 100) << "though places collide";
  EXPECT_EQ(known(pointers.size()), known(few)) << "and no others";
  for (const void* pointer : pointers) seen.add(pointer);
  EXPECT_TRUE(seen.contains(pointers.back()));
  seen.clear();
  EXPECT_EQ(known(pointers.size()), 0);
}

TEST_F(CudaCallsTest, ASessionAsksForTheContextOnce) {
  const auto module = device_->load(cubin_bytes());
  const Function work = module->function("work");
  const Stream stream = device_->trial_stream();
  const auto launch_twice = [&] {
    fake_calls() = {};
    const Session session(*device_);
    static_cast<void>(device_->capturing(stream));
    for (int i = 0; i < 2; ++i) device_->launch(work, {}, nullptr, 0, stream);
  };
  launch_twice();
  EXPECT_THAT(fake_calls().list(),
              ElementsAre("cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuStreamIsCapturing", "cuLaunchKernel",
                          "cuLaunchKernel", "cuCtxPopCurrent_v2"));
  EXPECT_EQ(current(), nullptr);

  // Another device inside, and the first one again.
  const auto other = open_cuda_device(1);
  const auto its_module = other->load(cubin_bytes());
  const Function its_work = its_module->function("work");
  {
    const Session session(*device_);
    other->launch(its_work, {}, nullptr, 0, nullptr);
    device_->launch(work, {}, nullptr, 0, stream);
    const Session inner(*other);
    other->launch(its_work, {}, nullptr, 0, nullptr);
    device_->launch(work, {}, nullptr, 0, stream);
  }
  EXPECT_EQ(current(), nullptr);
  EXPECT_EQ(fake().launches, 6);
}

TEST_F(CudaCallsTest, KernelsInARowAskForTheContextOnce) {
  const auto module = device_->load(cubin_bytes());
  const Stream stream = device_->trial_stream();
  const std::array kernels{
      KernelLaunch{module->function("work"), {.blocks = 7, .threads = 96}},
      KernelLaunch{module->function("work"), {.blocks = 8, .threads = 32, .cluster = 4}}};
  fake_calls() = {};
  device_->launch(kernels, nullptr, 0, stream);
  EXPECT_THAT(fake_calls().list(), ElementsAre("cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuLaunchKernel",
                                               "cuLaunchKernelEx", "cuCtxPopCurrent_v2"));
  EXPECT_EQ(current(), nullptr);
  fake_calls() = {};
  device_->launch({}, nullptr, 0, stream);
  EXPECT_THAT(fake_calls().list(), testing::Not(testing::Contains("cuLaunchKernel")));
}

TEST_F(CudaCallsTest, TheDefaultStreamCountsAsCapturingWithAStreamThatWaitsForIt) {
  EXPECT_FALSE(device_->capturing(nullptr));
  fake().legacy_stream_waits = true;
  EXPECT_TRUE(device_->capturing(nullptr));
}

TEST_F(CudaCallsTest, ErrorsNameTheCallAndTheReason) {
  const auto message_of = [](const auto& action) -> std::string {
    try {
      action();
    } catch (const DeviceError& error) {
      return error.what();
    }
    return "no error";
  };
  const auto module = device_->load(cubin_bytes());
  const Function work = module->function("work");
  fake().next_launch_result = CUDA_ERROR_INVALID_VALUE;
  EXPECT_THAT(message_of([&] { device_->launch(work, {.blocks = 3, .threads = 4096}, nullptr, 0, nullptr); }),
              AllOf(HasSubstr("blocks=3, threads=4096"), HasSubstr("CUDA_ERROR_INVALID_VALUE"),
                    HasSubstr("as the test asked")));
  EXPECT_THAT(message_of([&] { static_cast<void>(device_->allocate(std::size_t{1} << 31)); }),
              HasSubstr("cuMemAlloc(2147483648 bytes)"));
  EXPECT_THAT(message_of([&] { static_cast<void>(module->function("absent")); }), HasSubstr("\"absent\""));
  fake().ptx_result = CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
  EXPECT_THAT(message_of([&] { static_cast<void>(device_->load(std::as_bytes(std::span(".version 6.4")))); }),
              HasSubstr("no compiler for this"));
  EXPECT_THAT(message_of([&] { static_cast<void>(device_->load(cubin_bytes().subspan(1, 4))); }),
              HasSubstr("neither a cubin nor PTX"));
}

TEST_F(CudaCallsTest, DescribesASliceAndItsLimits) {
  const Model& model = device_->model();
  EXPECT_EQ(model.capability, 90);
  EXPECT_EQ(model.mig_slice, "1g.18gb");
  EXPECT_EQ(model.memory_bytes, std::int64_t{16} << 30);
  const Environment environment = device_->environment();
  EXPECT_EQ(environment.at("uuid"), "MIG-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
  EXPECT_EQ(environment.at("cuda"), "13.0");
  EXPECT_FALSE(environment.at("driver").empty());
  EXPECT_EQ(cuda_status().gpus.size(), 2);
}

TEST_F(CudaCallsTest, AnOldGpuIsUnsupportedByName) {
  fake().capability = 70;
  try {
    static_cast<void>(open_cuda_device(1));
    FAIL() << "opened";
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("NVIDIA H200"), HasSubstr("7.0"), HasSubstr("7.5")));
  }
  EXPECT_THAT(cuda_status().gpus.at(0).problem, HasSubstr("7.5"));
  EXPECT_THROW(static_cast<void>(open_cuda_device(2)), InvalidArgument);
}

}  // namespace
}  // namespace ce::runtime::cuda
