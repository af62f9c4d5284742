// What blocks of a cluster send each other on the host device: what is right, and the mistakes that must not
// pass.

#include <gtest/gtest.h>

#include <cstdio>

#include "ce/error.hpp"
#include "runtime/host/device.hpp"
#include "tests/runtime/host_fixture.hpp"

namespace ce::runtime::testing {
namespace {

constexpr int seeds = 20;

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// Every block hands its values to the next one, round after round, through two slots in that one's memory. A
// slot is full when the values of all threads of the block before have landed, and empty when all of its own
// have told that block that they have read.
const std::string ring = R"(#include "device/device.cuh"
struct Arguments { float* out; };
using namespace ce;
struct Shared { Words<2> slot[2][64], read[2][64]; Mbarrier full[2], empty[2]; };
CE_KERNEL(k, 64) {
  Shared& shared = shared_memory<Shared>();
  const int t = thread_index(), rank = cluster_rank();
  const int next = (rank + 1) % BLOCKS, previous = (rank + BLOCKS - 1) % BLOCKS;
  if (t == 0)
    for (int s = 0; s < 2; ++s) mbarrier_init(shared.full[s]), mbarrier_init(shared.empty[s]);
  cluster_arrive();
  cluster_wait();
  float value = float(1000 * block_index() + t);
  for (int round = 0; round < ROUNDS; ++round) {
    const int s = round % 2, parity = round / 2 % 2;
    if (WAIT_EMPTY && round >= 2) mbarrier_wait(shared.empty[s], parity ^ 1);
    if (t == 0) mbarrier_arrive_expect_tx(shared.full[s], 64 * 8), mbarrier_arrive_expect_tx(shared.empty[s], 64 * 8);
    Words<2> words{};
    put_bits(words.word[0], value);
    cluster_send(shared.slot[s][t], words, shared.full[s], next);
    if (WAIT_FULL) mbarrier_wait(shared.full[s], parity);
    get_bits(shared.slot[s][63 - t].word[0], value);
    value += 1.f;
    cluster_send(shared.read[s][t], {}, shared.empty[s], previous);
  }
  arguments.out[block_index() * 64 + t] = value;
  for (int round = ROUNDS - 2; round < ROUNDS; ++round) mbarrier_wait(shared.empty[round % 2], round / 2 % 2);
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
      .blocks = 2 * cluster, .threads = 64, .cluster = cluster, .shared_bytes = 4 * 512 + 4 * 8};
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

class HostClusterSends : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, HostClusterSends, ::testing::Values(1u, 2u, 3u, 8u));

TEST_P(HostClusterSends, ARingOfBlocksHandsValuesOn) {
  EXPECT_EQ(seeds_with_right_answers(GetParam(), "true", "true"), seeds);
}

TEST_P(HostClusterSends, ARingThatDoesNotWaitForFullSlotsIsFound) {
  EXPECT_EQ(seeds_with_right_answers(GetParam(), "false", "true"), 0);
}

TEST_P(HostClusterSends, ARingThatDoesNotWaitForEmptySlotsIsFound) {
  EXPECT_EQ(seeds_with_right_answers(GetParam(), "true", "false"), 0);
}

/// A kernel of clusters of two: thread 0 of each block has initialised `barrier` unless it is the block of rank
/// `uninitialised`.
std::string sending(const std::string& body, int uninitialised = -1) {
  return R"(#include "device/device.cuh"
struct Arguments { float* out; };
using namespace ce;
struct Shared { Words<4> row[2]; Words<2> value[64]; Mbarrier barrier, own; };
CE_KERNEL(k, 64) {
  Shared& shared = shared_memory<Shared>();
  Mbarrier& barrier = shared.barrier;
  const int t = thread_index(), rank = cluster_rank();
  if (t == 0 && rank != )" +
         std::to_string(uninitialised) + R"() mbarrier_init(barrier);
  if (t == 0) mbarrier_init(shared.own);
  cluster_arrive();
  cluster_wait();
)" + body +
         "\n}";
}
constexpr Launch pair{.blocks = 2, .threads = 64, .cluster = 2, .shared_bytes = 32 + 512 + 16};

TEST(HostClusterSend, WhatIsMissingIsAnErrorThatCounts) {
  const std::string text = sending(R"(
  if (rank == 0 && t != 5) cluster_send(shared.value[t], {}, barrier, 1);
  if (rank == 1 && t == 0) mbarrier_arrive_expect_tx(barrier, 64 * 8);
  if (rank == 1) mbarrier_wait(barrier);
)");
  const std::string message = failure_of(text, pair);
  EXPECT_CONTAINS(message, "block 1: thread 0 waits for a phase of an mbarrier that does not end at " +
                               place_of(text, "mbarrier_wait") + " after 1 of 1 arrivals, 8 bytes not sent");
  EXPECT_CONTAINS(message, "thread 0 of block 0 returned from the kernel");
}

TEST(HostClusterSend, WhatIsMissingIsNamedByThoseWhoWaitForTheCluster) {
  const std::string text = sending(R"(
  if (rank == 1) mbarrier_wait(barrier);  // in vain
  cluster_arrive();
  cluster_wait();  // last
)");
  const std::string message = failure_of(text, pair);
  EXPECT_CONTAINS(message, "waits for its cluster at " + place_of(text, "// last"));
  EXPECT_CONTAINS(message, "a phase of an mbarrier that does not end at " + place_of(text, "// in vain") +
                               " after 0 of 1 arrivals");
}

// The load of the first block lands when no thread can run: when the other block has returned.
TEST(HostClusterSend, ToABlockThatHasReturnedIsAnError) {
  const std::string text = sending(R"(
  if (rank == 0 && t == 0) {
    bulk_load(shared.row, arguments.out, 16, shared.own);
    mbarrier_wait(shared.own);
    cluster_send(shared.row[0], {}, barrier, 1);
  }
)");
  const std::string message = failure_of(text, pair);
  EXPECT_CONTAINS(message, "sends to block 1, which has returned, at " + place_of(text, "cluster_send"));
}

TEST(HostClusterSend, ToABlockThatReturnsBeforeItLandsIsAnError) {
  const std::string text = sending(R"(
  if (rank == 0 && t == 0) cluster_send(shared.row[0], {}, barrier, 1);
  cluster_arrive();
  cluster_wait();
)");
  EXPECT_CONTAINS(failure_of(text, pair), "block 1: returned before what was sent to it at " +
                                              place_of(text, "cluster_send") + " had landed");
}

TEST(HostClusterSend, MoreThanAnnouncedIsAnError) {
  EXPECT_CONTAINS(failure_of(sending(R"(
  if (rank == 0 && t == 0) cluster_send(shared.row[0], {}, barrier, 1);
  if (rank == 1 && t == 0) {
    mbarrier_arrive_expect_tx(barrier, 8);
    mbarrier_wait(barrier);
  }
)"),
                             pair),
                  "8 bytes more were sent to it than an mbarrier announced");
}

TEST(HostClusterSend, AWriteToTheDestinationIsFound) {
  const std::string text = sending(R"(
  if (rank == 0 && t == 0) cluster_send(shared.row[0], {}, barrier, 1);
  cluster_arrive();
  cluster_wait();
  if (rank == 1 && t == 0) {
    shared.row[0] = {};
    mbarrier_arrive_expect_tx(barrier, 16);
    mbarrier_wait(barrier);
  }
)");
  EXPECT_CONTAINS(failure_of(text, pair), "the destination of the send started at " +
                                              place_of(text, "cluster_send") +
                                              " was written to before it landed");
}

TEST(HostClusterSend, MistakesAreErrorsThatNameTheirPlace) {
  const auto message_of = [](const std::string& statement, int uninitialised = -1) {
    const std::string text = sending(
        "if (rank == 0 && t == 0) {\n" + statement + "  // here\n}\n" + "cluster_arrive();\ncluster_wait();",
        uninitialised);
    std::string message = failure_of(text, pair);
    EXPECT_CONTAINS(message, place_of(text, "// here"));
    return message;
  };
  EXPECT_CONTAINS(message_of("cluster_send(shared.row[0], {}, barrier, 2);"),
                  "sends to block 2 of a cluster of 2");
  EXPECT_CONTAINS(message_of("cluster_send(shared.row[0], {}, barrier, 1);", 1), "not initialised");
  EXPECT_CONTAINS(message_of("Mbarrier local; cluster_send(shared.row[0], {}, local, 1);"),
                  "not in its block's shared memory");
  EXPECT_CONTAINS(message_of("Words<2> local; cluster_send(local, {}, barrier, 1);"),
                  "not in its block's shared memory");
  EXPECT_CONTAINS(message_of("cluster_send(reinterpret_cast<Words<4>&>(shared.value[1]), {}, barrier, 1);"),
                  "sends to an address that is not a multiple of 16 bytes");
  EXPECT_CONTAINS(message_of("cluster_send(shared.row[0], {}, barrier, 1), "
                             "cluster_send(shared.row[0], {}, barrier, 1);"),
                  "sends to memory where the transfer started at");
  EXPECT_CONTAINS(message_of("mbarrier_arrive_expect_tx(barrier, 0);"), "announces 0 bytes");
  EXPECT_CONTAINS(message_of("mbarrier_arrive_expect_tx(barrier, 8), mbarrier_arrive_expect_tx(barrier, 8);"),
                  "an mbarrier that already has all its 1 arrivals");
}

}  // namespace
}  // namespace ce::runtime::testing
