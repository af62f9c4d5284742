// Arrivals of other blocks of a cluster on the host device: what is right, and the mistakes that must not
// pass.

#include <gtest/gtest.h>

#include <cstdio>

#include "ce/base/error.hpp"
#include "runtime/host/device.hpp"
#include "tests/runtime/host_fixture.hpp"

namespace ce::runtime::testing {
namespace {

constexpr int seeds = 20;

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// Every block hands its values to the next one, round after round, through two slots in that one's memory. A
// slot is full when all threads of the block before have written, and empty when all of its own have read.
const std::string ring = R"(#include "device.cuh"
struct Arguments { float* out; };
using namespace ce;
struct Shared { float slot[2][64]; Arrival full[2], empty[2]; };
CE_KERNEL(k, 64) {
  Shared& shared = shared_memory<Shared>();
  const int t = thread_index(), rank = cluster_rank();
  const int next = (rank + 1) % BLOCKS, previous = (rank + BLOCKS - 1) % BLOCKS;
  if (t == 0)
    for (int s = 0; s < 2; ++s) arrival_init(shared.full[s], 64), arrival_init(shared.empty[s], 64);
  cluster_arrive();
  cluster_wait();
  float value = float(1000 * block_index() + t);
  for (int round = 0; round < ROUNDS; ++round) {
    const int s = round % 2, parity = round / 2 % 2;
    if (WAIT_EMPTY && round >= 2) cluster_arrival_wait(shared.empty[s], parity ^ 1);
    cluster_shared(&shared, next)->slot[s][t] = value;
    cluster_arrival_arrive(shared.full[s], next);
    if (WAIT_FULL) cluster_arrival_wait(shared.full[s], parity);
    value = shared.slot[s][63 - t] + 1.f;
    cluster_arrival_arrive(shared.empty[s], previous);
  }
  cluster_arrive();
  cluster_wait();
  arguments.out[block_index() * 64 + t] = value;
})";
constexpr int rounds = 9;

/// Of the thread whose value is the i-th, after `rounds` steps to the next block.
float handed_on(std::size_t i, std::size_t cluster) {
  const std::size_t rank = i / 64 % cluster, first = i / 64 - rank;
  const std::size_t origin = (rank + rounds * (cluster - 1)) % cluster;
  const std::size_t thread = rounds % 2 == 0 ? i % 64 : 63 - i % 64;
  return static_cast<float>(1000 * (first + origin) + thread + rounds);
}

/// For how many seeds the ring hands every value on.
int seeds_with_right_answers(std::uint32_t cluster, const char* wait_full, const char* wait_empty) {
  const Binary binary =
      compiled(ring, {"-DBLOCKS=" + std::to_string(cluster), "-DROUNDS=" + std::to_string(rounds),
                      std::string("-DWAIT_FULL=") + wait_full, std::string("-DWAIT_EMPTY=") + wait_empty});
  const Launch launch{
      .blocks = 2 * cluster, .threads = 64, .cluster = cluster, .shared_bytes = 2 * 256 + 4 * 8};
  int right = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    const auto device = open_with_seed(static_cast<std::uint64_t>(seed));
    try {
      const auto values = FloatKernel(*device, binary)(launch);
      bool all = true;
      for (std::size_t i = 0; i < values.size(); ++i) all = all && values[i] == handed_on(i, cluster);
      right += all ? 1 : 0;
    } catch (const DeviceError& error) {
      EXPECT_CONTAINS(std::string(error.what()), "kernel.cu:");
    }
  }
  std::printf("seeds 0 to %d: right for %d\n", seeds - 1, right);
  return right;
}

class HostClusterArrivals : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, HostClusterArrivals, ::testing::Values(2u, 3u, 8u));

TEST_P(HostClusterArrivals, ARingOfBlocksHandsValuesOn) {
  EXPECT_EQ(seeds_with_right_answers(GetParam(), "true", "true"), seeds);
}

TEST_P(HostClusterArrivals, ARingThatDoesNotWaitForFullSlotsIsFound) {
  EXPECT_EQ(seeds_with_right_answers(GetParam(), "false", "true"), 0);
}

// Of two blocks, each has read a value before the other gets the next one back: nothing to wait for.
TEST_P(HostClusterArrivals, ARingThatDoesNotWaitForEmptySlotsIsFound) {
  EXPECT_EQ(seeds_with_right_answers(GetParam(), "true", "false"), GetParam() == 2 ? seeds : 0);
}

/// A kernel of clusters of two: thread 0 of each block has initialised `arrival`, of `count`, unless it is
/// the block of rank `uninitialised`.
std::string arriving(const std::string& body, int count = 1, int uninitialised = -1) {
  return R"(#include "device.cuh"
struct Arguments { float* out; };
using namespace ce;
struct Shared { float row[4]; Arrival arrival, own; };
CE_KERNEL(k, 64) {
  Shared& shared = shared_memory<Shared>();
  Arrival& arrival = shared.arrival;
  const int t = thread_index(), rank = cluster_rank();
  if (t == 0 && rank != )" +
         std::to_string(uninitialised) + ") arrival_init(arrival, " + std::to_string(count) + R"();
  if (t == 0) arrival_init(shared.own);
  cluster_arrive();
  cluster_wait();
)" + body +
         "\n}";
}
constexpr Launch pair{.blocks = 2, .threads = 64, .cluster = 2, .shared_bytes = 32};

TEST(HostClusterArrival, AMissingOneIsAnErrorThatCounts) {
  const std::string text = arriving(R"(
  if (rank == 0 && t != 5) cluster_arrival_arrive(arrival, 1);
  if (rank == 1) cluster_arrival_wait(arrival, 0);
)",
                                    64);
  const std::string message = failure_of(text, pair);
  EXPECT_CONTAINS(message,
                  "block 1: thread 0 waits for an arrival of its cluster whose phase does not end at " +
                      place_of(text, "cluster_arrival_wait") + " after 63 of 64 arrivals");
  EXPECT_CONTAINS(message, "thread 0 of block 0 returned from the kernel");
}

TEST(HostClusterArrival, AMissingOneIsNamedByThoseWhoWaitForTheCluster) {
  const std::string text = arriving(R"(
  if (rank == 1) cluster_arrival_wait(arrival, 0);  // in vain
  cluster_arrive();
  cluster_wait();  // last
)");
  const std::string message = failure_of(text, pair);
  EXPECT_CONTAINS(message, "waits for its cluster at " + place_of(text, "// last"));
  EXPECT_CONTAINS(message, "an arrival of its cluster whose phase does not end at " +
                               place_of(text, "// in vain") + " after 0 of 1 arrivals");
}

// The load of the first block lands when no thread can run: when the other block has returned.
TEST(HostClusterArrival, AtABlockThatHasReturnedIsAnError) {
  const std::string text = arriving(R"(
  if (rank == 0 && t == 0) {
    bulk_load(shared.row, arguments.out, 16, shared.own);
    arrival_wait(shared.own);
    cluster_arrival_arrive(arrival, 1);
  }
)");
  const std::string message = failure_of(text, pair);
  EXPECT_CONTAINS(message, "block 1, which has returned, at " + place_of(text, "cluster_arrival_arrive"));
}

TEST(HostClusterArrival, MistakesAreErrorsThatNameTheirPlace) {
  const auto message_of = [](const std::string& statement, int uninitialised = -1) {
    const std::string text = arriving(
        "if (rank == 0 && t == 0) {\n" + statement + "  // here\n}\n" + "cluster_arrive();\ncluster_wait();",
        1, uninitialised);
    std::string message = failure_of(text, pair);
    EXPECT_CONTAINS(message, place_of(text, "// here"));
    return message;
  };
  EXPECT_CONTAINS(message_of("cluster_arrival_arrive(arrival, 2);"), "asks for block 2 of a cluster of 2");
  EXPECT_CONTAINS(message_of("cluster_arrival_arrive(arrival, 1);", 1), "not initialised");
  EXPECT_CONTAINS(message_of("Arrival local; cluster_arrival_arrive(local, 1);"),
                  "not in its block's shared memory");
  EXPECT_CONTAINS(message_of("cluster_arrival_wait(*cluster_shared(&arrival, 1), 0);"),
                  "not in its block's shared memory");
  EXPECT_CONTAINS(message_of("bulk_load(shared.row, arguments.out, 16, arrival), "
                             "cluster_arrival_arrive(arrival, 0);"),
                  "one more than the 1 of an arrival");
}

// Whichever comes first.
TEST(HostClusterArrival, AWaitForTheBlockAloneIsAnErrorThatNamesBoth) {
  const std::string text = arriving(R"(
  if (rank == 0 && t == 0) cluster_arrival_arrive(arrival, 1);
  if (rank == 1) arrival_wait(arrival);
)");
  const Binary binary = compiled(text);
  for (int seed = 0; seed < seeds; ++seed) {
    const auto device = open_with_seed(static_cast<std::uint64_t>(seed));
    const std::string message = device_error(FloatKernel(*device, binary), pair);
    EXPECT_CONTAINS(message, "block 1: an arrival at which another block arrives at " +
                                 place_of(text, "cluster_arrival_arrive"));
    EXPECT_CONTAINS(message, "is awaited at " + place_of(text, " arrival_wait"));
  }
}

// Its own arrivals need no more than a wait for the block.
TEST(HostClusterArrival, AtTheOwnBlockIsAnArrivalLikeAnother) {
  const Binary binary = compiled(arriving(R"(
  if (t == 40) {
    shared.row[1] = 7.f;
    cluster_arrival_arrive(arrival, rank);
  }
  arrival_wait(arrival);
  arguments.out[block_index() * 64 + t] = shared.row[1];
)"));
  for (int seed = 0; seed < seeds; ++seed) {
    const auto device = open_with_seed(static_cast<std::uint64_t>(seed));
    for (const float value : FloatKernel(*device, binary)(pair)) ASSERT_EQ(value, 7.f) << seed;
  }
}

}  // namespace
}  // namespace ce::runtime::testing
