// Kernels that are wrong: the host device must find it, name the place, and go on working.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "ce/error.hpp"
#include "runtime/host/device.hpp"
#include "tests/runtime/host_fixture.hpp"

namespace ce::runtime::testing {
namespace {

using namespace std::string_literals;

constexpr int seeds = 32;

const std::string header = R"(#include "device/device.cuh"
struct Arguments { float* out; };
using namespace ce;
)";

/// Launches that fail, on a device that must give right answers after each of them.
class HostScheduler : public ::testing::Test {
 protected:
  /// The error's text.
  std::string failure_of(const std::string& text, const Launch& launch) {
    const std::string message = device_error(FloatKernel(*device_, text), launch);
    EXPECT_NE(message.find("launch of k"), std::string::npos) << message;
    for (const float value : right_({.blocks = 3, .threads = 256})) EXPECT_EQ(value, 32.f * 31 / 2);
    return message;
  }

  std::unique_ptr<Device> device_ = open_with_seed(7);
  FloatKernel right_{*device_, header + R"(
CE_KERNEL(k, 1024) {
  float sum = float(lane_index());
  for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  block_barrier();
  arguments.out[block_index() * 256 + thread_index()] = sum;
})"};
};

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

/// For how many of the seeds each value that a launch writes is `expected`.
int seeds_with_right_answers(const std::string& text, const char* option, const Launch& launch,
                             float expected) {
  std::printf("seeds 0 to %d\n", seeds - 1);
  const Binary binary = open_host_device()->compile(request(text, {option}));
  int right = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    const auto device = open_with_seed(static_cast<std::uint64_t>(seed));
    const auto values = FloatKernel(*device, binary)(launch);
    right += std::ranges::all_of(values, [&](float value) { return value == expected; }) ? 1 : 0;
  }
  return right;
}

// Every thread reads what a thread of another warp wrote.
TEST(HostSchedule, AMissingBarrierAfterWritingGivesWrongAnswers) {
  const std::string text = header + R"(
CE_KERNEL(k, 256) {
  float* const shared = shared_memory<float[256]>();
  shared[thread_index()] = float(thread_index());
  if (SYNCHRONIZED) block_barrier();
  arguments.out[thread_index()] = shared[255 - thread_index()] + float(thread_index());
})";
  const Launch launch{.threads = 256, .shared_bytes = 1024};
  EXPECT_EQ(seeds_with_right_answers(text, "-DSYNCHRONIZED=true", launch, 255.f), seeds);
  EXPECT_EQ(seeds_with_right_answers(text, "-DSYNCHRONIZED=false", launch, 255.f), 0);
}

// The write of the next round may overtake the reads of this one: only an order of warps that leaves warp 0
// to the last, in each round, hides it.
TEST(HostSchedule, AMissingBarrierBeforeReusingSharedMemoryGivesWrongAnswers) {
  const std::string text = header + R"(
CE_KERNEL(k, 256) {
  float& shared = shared_memory<float>();
  float sum = 0.f;
  for (int round = 0; round < 5; ++round) {
    if (thread_index() == 0) shared = float(round);
    block_barrier();
    sum += shared;
    if (SYNCHRONIZED) block_barrier();
  }
  arguments.out[thread_index()] = sum;
})";
  const Launch launch{.threads = 256, .shared_bytes = 4};
  EXPECT_EQ(seeds_with_right_answers(text, "-DSYNCHRONIZED=true", launch, 10.f), seeds);
  EXPECT_LE(seeds_with_right_answers(text, "-DSYNCHRONIZED=false", launch, 10.f), 1);
}

TEST(HostSchedule, AMissingWarpBarrierGivesWrongAnswers) {
  const std::string text = header + R"(
CE_KERNEL(k, 32) {
  float* const shared = shared_memory<float[32]>();
  shared[lane_index()] = float(lane_index());
  if (SYNCHRONIZED) warp_barrier();
  arguments.out[lane_index()] = shared[31 - lane_index()] + float(lane_index());
})";
  const Launch launch{.threads = 32, .shared_bytes = 128};
  EXPECT_EQ(seeds_with_right_answers(text, "-DSYNCHRONIZED=true", launch, 31.f), seeds);
  EXPECT_EQ(seeds_with_right_answers(text, "-DSYNCHRONIZED=false", launch, 31.f), 0);
}

TEST(HostSchedule, IsTheSameForTheSameSeedAndAnotherForAnother) {
  const std::string text = header + R"(
CE_KERNEL(k, 128) {
  int& turn = shared_memory<int>();
  if (thread_index() == 0) turn = 0;
  block_barrier();
  arguments.out[block_index() * 128 + thread_index()] = float(turn++);
})";
  const Launch launch{.blocks = 40, .threads = 128, .shared_bytes = 4};
  const auto first = open_with_seed(3);
  const auto second = open_with_seed(3);
  const auto third = open_with_seed(4);
  const auto order = FloatKernel(*first, text)(launch);
  EXPECT_EQ(order, FloatKernel(*second, text)(launch));
  EXPECT_NE(order, FloatKernel(*third, text)(launch));
  EXPECT_FALSE(std::equal(order.begin(), order.begin() + 128, order.begin() + 128)) << "blocks differ";
}

TEST_F(HostScheduler, DifferentBarriersAreAnErrorThatNamesBoth) {
  const std::string text = header + R"(
CE_KERNEL(k, 64) {
  if (warp_index() == 0)
    block_barrier();  // one
  else
    block_barrier();  // two
})";
  const std::string message = failure_of(text, {.threads = 64});
  EXPECT_CONTAINS(message, place_of(text, "// one"));
  EXPECT_CONTAINS(message, place_of(text, "// two"));
}

TEST_F(HostScheduler, AWarpAndABlockBarrierInOneWarpAreAnErrorThatNamesBoth) {
  const std::string text = header + R"(
CE_KERNEL(k, 64) {
  if (lane_index() < 5)
    warp_barrier();  // one
  else
    block_barrier();  // two
})";
  const std::string message = failure_of(text, {.threads = 64});
  EXPECT_CONTAINS(message, place_of(text, "// one"));
  EXPECT_CONTAINS(message, place_of(text, "// two"));
}

TEST_F(HostScheduler, AThreadThatReturnsEarlyIsAnError) {
  const std::string text = header + R"(
CE_KERNEL(k, 96) {
  if (thread_index() == 77) return;
  block_barrier();
})";
  const std::string message = failure_of(text, {.blocks = 2, .threads = 96});
  EXPECT_CONTAINS(message, place_of(text, "block_barrier"));
  EXPECT_CONTAINS(message, "thread 77 returned from the kernel");
  EXPECT_CONTAINS(message, "CE_HOST_SEED=7");
}

TEST_F(HostScheduler, HalfAWarpInAShuffleIsAnError) {
  const std::string text = header + R"(
CE_KERNEL(k, 32) {
  float x = 1.f;
  if (lane_index() < 16) x = shuffle_xor(x, 1);
  arguments.out[lane_index()] = x;
})";
  const std::string message = failure_of(text, {.threads = 32});
  EXPECT_CONTAINS(message, place_of(text, "shuffle_xor"));
  EXPECT_CONTAINS(message, "returned from the kernel");
}

TEST_F(HostScheduler, ALaneOutsideTheWarpIsAnError) {
  const std::string text = header + "CE_KERNEL(k, 32) { arguments.out[0] = shuffle_xor(1.f, 32); }";
  EXPECT_CONTAINS(failure_of(text, {.threads = 32}), place_of(text, "shuffle_xor"));
}

TEST_F(HostScheduler, AMisalignedAccessIsAnError) {
  const std::string load_text = header + R"(
CE_KERNEL(k, 32) {
  block_barrier();
  arguments.out[0] = float(load<Load::ca, 4>(arguments.out + 1).word[0]);
})";
  std::string message = failure_of(load_text, {.threads = 32});
  EXPECT_CONTAINS(message, place_of(load_text, "load<"));
  EXPECT_CONTAINS(message, "not a multiple of 16");
  const std::string store_text = header + R"(
CE_KERNEL(k, 32) {
  store<Store::wb>(arguments.out + 1, Words<2>{});
})";
  message = failure_of(store_text, {.threads = 32});
  EXPECT_CONTAINS(message, place_of(store_text, "store<"));
  EXPECT_CONTAINS(message, "not a multiple of 8");
}

TEST_F(HostScheduler, AWritePastSharedMemoryIsAnError) {
  const std::string text = header + R"(
CE_KERNEL(k, 32) { shared_memory<float[33]>()[thread_index() + 1] = 0.f; })";
  EXPECT_CONTAINS(failure_of(text, {.threads = 32, .shared_bytes = 128}),
                  "past the end of its shared memory");
}

TEST_F(HostScheduler, AWriteBeyondAnAllocationIsAnError) {
  for (const char* place : {"[thread_index() + 1]", "[thread_index() - 1]"})
    EXPECT_CONTAINS(
        failure_of(header + "CE_KERNEL(k, 32) { arguments.out" + place + " = 0.f; }", {.threads = 32}),
        "an allocation of 128 bytes");
}

// Blocks run on several OS threads; the report does not depend on which is first.
TEST_F(HostScheduler, TheFirstOfSeveralFailingBlocksIsReported) {
  const FloatKernel kernel(*device_, header + R"(
CE_KERNEL(k, 64) {
  if (block_index() >= 137 && block_index() % 3 == 2 && thread_index() == 0) return;
  block_barrier();
})");
  for (int repeat = 0; repeat < 20; ++repeat)
    EXPECT_CONTAINS(device_error(kernel, {.blocks = 2000, .threads = 64}), "block 137:");
}

// 1000 barriers of 1024 threads: a schedule that looked at all threads at each switch would take minutes.
TEST_F(HostScheduler, BarriersCostNoMoreThanTheirThreads) {
  const FloatKernel kernel(*device_, header + R"(
CE_KERNEL(k, 1024) {
  for (int i = 0; i < 1000; ++i) block_barrier();
  arguments.out[thread_index()] = 1.f;
})");
  const auto start = std::chrono::steady_clock::now();
  const auto values = kernel({.threads = 1024});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_TRUE(std::ranges::all_of(values, [](float value) { return value == 1.f; }));
}

}  // namespace
}  // namespace ce::runtime::testing
