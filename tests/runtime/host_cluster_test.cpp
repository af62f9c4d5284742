// Clusters on the host device: what is right, and the mistakes that must not pass.

#include <gtest/gtest.h>

#include <cstdio>

#include "ce/error.hpp"
#include "runtime/host/device.hpp"
#include "tests/runtime/host_fixture.hpp"

namespace ce::runtime::testing {
namespace {

constexpr int seeds = 20;

const std::string header = R"(#include "device/device.cuh"
struct Arguments { float* out; };
using namespace ce;
)";

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

/// For how many of the seeds each value that a launch writes is what `expected` says for its index.
template <class Expected>
int seeds_with_right_answers(const Binary& binary, const Launch& launch, const Expected& expected) {
  int right = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    const auto device = open_with_seed(static_cast<std::uint64_t>(seed));
    const auto values = FloatKernel(*device, binary)(launch);
    bool all = true;
    for (std::size_t i = 0; i < values.size(); ++i) all = all && values[i] == expected(i);
    right += all ? 1 : 0;
  }
  std::printf("seeds 0 to %d: right for %d\n", seeds - 1, right);
  return right;
}

class HostClusters : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, HostClusters, ::testing::Values(1u, 2u, 4u, 16u));

TEST_P(HostClusters, BlocksKnowTheirRankAndTheirPlaceInTheGrid) {
  const std::uint32_t cluster = GetParam();
  const Binary binary = compiled(header + R"(
CE_KERNEL(k, 64) {
  arguments.out[block_index() * 64 + thread_index()] = float(100 * block_index() + cluster_rank());
})");
  const Launch launch{.blocks = 3 * cluster, .threads = 64, .cluster = cluster};
  const auto expected = [&](std::size_t i) {
    const std::size_t block = i / 64;
    return static_cast<float>(100 * block + block % cluster);
  };
  EXPECT_EQ(seeds_with_right_answers(binary, launch, expected), seeds);
}

// Each thread tells its counterparts in all blocks of the cluster a value; the work between the halves of the
// barrier, after which all arrivals are initialised, is a reduction of the block's own.
const std::string exchange = header + R"(
struct Shared { Words<2> value[BLOCKS][64]; float own[64]; Mbarrier told; };
CE_KERNEL(k, 64) {
  Shared& shared = shared_memory<Shared>();
  const int t = thread_index();
  if (t == 0) {
    mbarrier_init(shared.told);
    mbarrier_arrive_expect_tx(shared.told, BLOCKS * 64 * 8);
  }
  cluster_arrive();
  shared.own[t] = float(t);
  block_barrier();
  float sum = shared.own[63 - t];
  cluster_wait();
  Words<2> words{};
  put_bits(words.word[0], float(block_index() + 2000));
  for (int rank = 0; rank < BLOCKS; ++rank)
    cluster_send(shared.value[cluster_rank()][t], words, shared.told, rank);
  if (!EARLY) mbarrier_wait(shared.told);
  for (int rank = 0; rank < BLOCKS; ++rank) {
    float value;
    get_bits(shared.value[rank][t].word[0], value);
    sum += value;
  }
  if (EARLY) mbarrier_wait(shared.told);
  arguments.out[block_index() * 64 + t] = sum;
})";

Launch exchange_launch(std::uint32_t cluster) {
  return {.blocks = 3 * cluster, .threads = 64, .cluster = cluster, .shared_bytes = cluster * 512 + 256 + 8};
}

Binary exchange_binary(std::uint32_t cluster, const char* early) {
  return compiled(exchange, {"-DBLOCKS=" + std::to_string(cluster), std::string("-DEARLY=") + early});
}

float exchanged(std::size_t i, std::uint32_t cluster) {
  const std::size_t first = i / 64 / cluster * cluster;
  float sum = static_cast<float>(63 - i % 64);
  for (std::size_t block = first; block < first + cluster; ++block) sum += static_cast<float>(block + 2000);
  return sum;
}

TEST_P(HostClusters, BlocksSendEachOtherValues) {
  const std::uint32_t cluster = GetParam();
  EXPECT_EQ(seeds_with_right_answers(exchange_binary(cluster, "false"), exchange_launch(cluster),
                                     [&](auto i) { return exchanged(i, cluster); }),
            seeds);
}

TEST_P(HostClusters, ReadingWhatHasNotLandedGivesWrongAnswers) {
  const std::uint32_t cluster = GetParam();
  EXPECT_EQ(seeds_with_right_answers(exchange_binary(cluster, "true"), exchange_launch(cluster),
                                     [&](auto i) { return exchanged(i, cluster); }),
            0);
}

TEST(HostCluster, ABlockThatReturnsBeforeTheBarrierIsAnErrorThatNamesBoth) {
  const std::string text = header + R"(
CE_KERNEL(k, 64) {
  if (cluster_rank() == 1) return;
  cluster_arrive();
  cluster_wait();
})";
  const std::string message = failure_of(text, {.blocks = 8, .threads = 64, .cluster = 4});
  EXPECT_CONTAINS(message, "waits for its cluster at " + place_of(text, "cluster_wait"));
  EXPECT_CONTAINS(message, "thread 0 of block 1 returned from the kernel");
}

TEST(HostCluster, AClusterBarrierAndABlockBarrierAreAnErrorThatNamesBoth) {
  const std::string text = header + R"(
CE_KERNEL(k, 64) {
  if (cluster_rank() == 1 && thread_index() < 40) block_barrier();
  cluster_arrive();
  cluster_wait();
})";
  const std::string message = failure_of(text, {.blocks = 2, .threads = 64, .cluster = 2});
  EXPECT_CONTAINS(message, "waits for its cluster at " + place_of(text, "cluster_wait"));
  EXPECT_CONTAINS(message, "waits for its block at " + place_of(text, "block_barrier"));
}

TEST(HostCluster, DifferentClusterBarriersAreAnErrorThatNamesBoth) {
  const std::string text = header + R"(
CE_KERNEL(k, 64) {
  if (cluster_rank() == 1)
    cluster_arrive();  // one
  else
    cluster_arrive();  // two
  cluster_wait();
})";
  const std::string message = failure_of(text, {.blocks = 2, .threads = 64, .cluster = 2});
  EXPECT_CONTAINS(message, place_of(text, "// one"));
  EXPECT_CONTAINS(message, place_of(text, "// two"));
}

TEST(HostCluster, HalvesOfABarrierThatDoNotAlternateAreErrors) {
  const Launch launch{.blocks = 2, .threads = 64, .cluster = 2};
  const std::string twice = header + "CE_KERNEL(k, 64) {\ncluster_arrive();\ncluster_arrive();  // again\n}";
  std::string message = failure_of(twice, launch);
  EXPECT_CONTAINS(message, place_of(twice, "cluster_arrive"));
  EXPECT_CONTAINS(message, place_of(twice, "// again"));
  const std::string no_arrive = header + "CE_KERNEL(k, 64) {\ncluster_wait();\n}";
  message = failure_of(no_arrive, launch);
  EXPECT_CONTAINS(message, "without having arrived");
  EXPECT_CONTAINS(message, place_of(no_arrive, "cluster_wait"));
  const std::string no_wait = header + "CE_KERNEL(k, 64) {\ncluster_arrive();\n}";
  message = failure_of(no_wait, launch);
  EXPECT_CONTAINS(message, "without having waited");
  EXPECT_CONTAINS(message, place_of(no_wait, "cluster_arrive"));
}

TEST(HostCluster, KnowsWhichClustersFit) {
  const auto device = open_host_device();
  const auto module = device->load(compiled(header + "CE_KERNEL(k, 64) {}").image);
  const Function kernel = module->function("k");
  EXPECT_TRUE(device->fits(kernel, {.blocks = 32, .threads = 64, .cluster = 16}));
  EXPECT_FALSE(device->fits(kernel, {.blocks = 34, .threads = 64, .cluster = 17}));
  EXPECT_FALSE(device->fits(kernel, {.blocks = 31, .threads = 64, .cluster = 16}));
  try {
    device->launch(kernel, {.blocks = 31, .threads = 64, .cluster = 16}, nullptr, 0, nullptr);
    ADD_FAILURE() << "launched";
  } catch (const DeviceError& error) {
    EXPECT_CONTAINS(std::string(error.what()), "not a multiple of the 16 blocks of a cluster");
  }
}

}  // namespace
}  // namespace ce::runtime::testing
