// Bulk loads on the host device: what is right, and the mistakes that must not pass.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

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

// A row in four chunks, each with an mbarrier of its own; every block sums the whole row.
const std::string chunked = R"(#include "device/device.cuh"
struct Arguments { float* out; const float* in; };
using namespace ce;
struct Shared { float row[4 * 256]; Mbarrier arrivals[4]; float sums[2]; };
CE_KERNEL(k, 64) {
  Shared& shared = shared_memory<Shared>();
  if (thread_index() == 0)
    for (int c = 0; c < 4; ++c) {
      mbarrier_init(shared.arrivals[c]);
      bulk_load(shared.row + 256 * c, arguments.in + 256 * c, 1024, shared.arrivals[c]);
    }
  block_barrier();
  float sum = 0.f;
  for (int c = 0; c < 4; ++c) {
    if (c < WAITS) mbarrier_wait(shared.arrivals[c]);
    for (int i = thread_index(); i < 256; i += 64) sum += shared.row[256 * c + i];
  }
  for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  if (lane_index() == 0) shared.sums[warp_index()] = sum;
  block_barrier();
  arguments.out[block_index() * 64 + thread_index()] = shared.sums[0] + shared.sums[1];
})";

constexpr Launch row_launch{
    .blocks = 6, .threads = 64, .cluster = 2, .shared_bytes = 4 * 1024 + 4 * 8 + 2 * 4};

/// What a kernel writes that reads a row of 0, 1, ... 1023.
std::vector<float> row_sums(const Binary& binary, const Launch& launch, int seed) {
  const auto device = open_with_seed(static_cast<std::uint64_t>(seed));
  const auto module = device->load(binary.image);
  std::vector<float> row(1024), values(std::size_t{launch.blocks} * launch.threads);
  std::iota(row.begin(), row.end(), 0.f);
  const Buffer in(*device, row.size() * sizeof(float));
  const Buffer out(*device, values.size() * sizeof(float));
  device->upload(in.data(), row.data(), in.size());
  const std::array<void*, 2> arguments = {out.data(), in.data()};
  device->launch(module->function("k"), launch, arguments.data(), sizeof arguments, nullptr);
  device->download(values.data(), out.data(), out.size());
  return values;
}

bool is_nan(float value) { return std::isnan(value); }

TEST(HostBulkLoad, ARowInChunksArrives) {
  const Binary binary = compiled(chunked, {"-DWAITS=4"});
  for (int seed = 0; seed < seeds; ++seed)
    for (const float value : row_sums(binary, row_launch, seed)) ASSERT_EQ(value, 1023.f * 512) << seed;
}

TEST(HostBulkLoad, AMissingWaitGivesNaN) {
  for (const char* waits : {"-DWAITS=0", "-DWAITS=3"}) {
    const Binary binary = compiled(chunked, {waits});
    for (int seed = 0; seed < seeds; ++seed)
      EXPECT_TRUE(std::ranges::all_of(row_sums(binary, row_launch, seed), is_nan)) << waits << ' ' << seed;
  }
}

// Two slots that are loaded again and again: a slot is full when its load has landed, and empty when all have
// read it.
const std::string ring = R"(#include "device/device.cuh"
struct Arguments { float* out; const float* in; };
using namespace ce;
constexpr int chunks = 16;
struct Shared { float slot[2][64]; Mbarrier full[2], empty[2]; };
CE_KERNEL(k, 64) {
  Shared& shared = shared_memory<Shared>();
  const bool first = thread_index() == 0;
  const auto load_chunk = [&](int c) {
    bulk_load(shared.slot[c % 2], arguments.in + 64 * c, 256, shared.full[c % 2]);
  };
  if (first) {
    for (int s = 0; s < 2; ++s) mbarrier_init(shared.full[s]), mbarrier_init(shared.empty[s], 64);
    for (int c = 0; c < 2; ++c) load_chunk(c);
  }
  block_barrier();
  float sum = 0.f;
  for (int c = 0; c < chunks; ++c) {
    const int phase = c / 2 % 2;
    if (WAIT_FULL) mbarrier_wait(shared.full[c % 2], phase);
    sum += shared.slot[c % 2][63 - thread_index()];
    mbarrier_arrive(shared.empty[c % 2]);
    if (first && c + 2 < chunks) {
      if (WAIT_EMPTY) mbarrier_wait(shared.empty[c % 2], phase);
      load_chunk(c + 2);
    }
  }
  arguments.out[block_index() * 64 + thread_index()] = sum;
})";

constexpr Launch ring_launch{.blocks = 3, .threads = 64, .shared_bytes = 2 * 256 + 4 * 8};

TEST(HostBulkLoad, ARingOfSlotsServesPhaseAfterPhase) {
  const Binary binary = compiled(ring, {"-DWAIT_FULL=1", "-DWAIT_EMPTY=1"});
  for (int seed = 0; seed < seeds; ++seed) {
    const auto values = row_sums(binary, ring_launch, seed);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], 16.f * static_cast<float>(63 - i % 64) + 64.f * 15 * 8) << seed;
  }
}

// A slot that is loaded while some still read it is NaN to them, or an error of the arrivals' count.
TEST(HostBulkLoad, ARingWithoutOneOfItsWaitsIsFound) {
  for (const auto& options : {std::vector<std::string>{"-DWAIT_FULL=0", "-DWAIT_EMPTY=1"},
                              std::vector<std::string>{"-DWAIT_FULL=1", "-DWAIT_EMPTY=0"}}) {
    const Binary binary = compiled(ring, options);
    for (int seed = 0; seed < seeds; ++seed) {
      try {
        EXPECT_TRUE(std::ranges::any_of(row_sums(binary, ring_launch, seed), is_nan))
            << options[0] << ' ' << seed;
      } catch (const DeviceError& error) {
        EXPECT_CONTAINS(std::string(error.what()), "kernel.cu:");
      }
    }
  }
}

/// A kernel of one block whose body has `barrier`, `row` (16 floats) and thread 0 as `first`.
std::string loading(const std::string& body) {
  return header + R"(
struct Shared { float row[16]; Mbarrier barrier; };
CE_KERNEL(k, 64) {
  Shared& shared = shared_memory<Shared>();
  Mbarrier& barrier = shared.barrier;
  float* const row = shared.row;
  const bool first = thread_index() == 0;
)" + body +
         "\n}";
}
constexpr Launch loading_launch{.threads = 64, .shared_bytes = 72};

TEST(HostBulkLoad, OneThreadThatDoesNotWaitReadsNaN) {
  const Binary binary = compiled(loading(R"(
  if (first) {
    mbarrier_init(barrier);
    bulk_load(row, arguments.out, 64, barrier);
    mbarrier_wait(barrier);
  }
  arguments.out[thread_index()] = first ? 1.f : row[thread_index() % 16];
)"));
  for (int seed = 0; seed < seeds; ++seed) {
    const auto device = open_with_seed(static_cast<std::uint64_t>(seed));
    const auto values = FloatKernel(*device, binary)(loading_launch);
    EXPECT_EQ(std::ranges::count_if(values, is_nan), 63) << seed;
  }
}

TEST(HostBulkLoad, AnArrivalThatWasNotInitialisedIsAnError) {
  const std::string text = loading("mbarrier_wait(barrier);");
  std::string message = failure_of(text, loading_launch);
  EXPECT_CONTAINS(message, "not initialised");
  EXPECT_CONTAINS(message, place_of(text, "mbarrier_wait"));
  const std::string load_text = loading("if (first) bulk_load(row, arguments.out, 64, barrier);");
  message = failure_of(load_text, loading_launch);
  EXPECT_CONTAINS(message, "not initialised");
  EXPECT_CONTAINS(message, place_of(load_text, "bulk_load"));
  const std::string overwritten =
      loading("if (first) mbarrier_init(barrier), row[16] = 1.f, mbarrier_wait(barrier);");
  EXPECT_CONTAINS(failure_of(overwritten, loading_launch), "not initialised");
}

TEST(HostBulkLoad, WaitingForWhatWasNeverStartedIsAnErrorAndNoHang) {
  const std::string all =
      loading("if (first) mbarrier_init(barrier);\nblock_barrier();\nmbarrier_wait(barrier);");
  std::string message = failure_of(all, loading_launch);
  EXPECT_CONTAINS(message, "a phase of an mbarrier that does not end at " + place_of(all, "mbarrier_wait"));
  const std::string one =
      loading("if (first) mbarrier_init(barrier), mbarrier_wait(barrier);\nblock_barrier();");
  message = failure_of(one, loading_launch);
  EXPECT_CONTAINS(message, "a phase of an mbarrier that does not end at " + place_of(one, "mbarrier_wait"));
  EXPECT_CONTAINS(message, "waits for its block at " + place_of(one, "block_barrier"));
}

// Waiting lets the others run, one of whom starts the load.
TEST(HostBulkLoad, MayBeStartedAfterOthersWaitForIt) {
  const Binary binary = compiled(loading(R"(
  if (first) mbarrier_init(barrier);
  arguments.out[thread_index()] = 5.f;
  block_barrier();
  if (thread_index() == 63) bulk_load(row, arguments.out, 64, barrier);
  mbarrier_wait(barrier);
  arguments.out[thread_index()] = row[thread_index() % 16];
)"));
  for (int seed = 0; seed < seeds; ++seed) {
    const auto device = open_with_seed(static_cast<std::uint64_t>(seed));
    for (const float value : FloatKernel(*device, binary)(loading_launch)) ASSERT_EQ(value, 5.f) << seed;
  }
}

TEST(HostBulkLoad, MistakesOfTheThreadThatStartsItAreErrors) {
  const auto message_of = [](const std::string& statement) {
    const std::string text = loading("if (first) {\nmbarrier_init(barrier);\n" + statement + "  // here\n}");
    std::string message = failure_of(text, loading_launch);
    EXPECT_CONTAINS(message, place_of(text, "// here"));
    return message;
  };
  EXPECT_CONTAINS(message_of("bulk_load(row + 1, arguments.out, 16, barrier);"),
                  "to an address that is not a");
  EXPECT_CONTAINS(message_of("bulk_load(row, arguments.out + 2, 16, barrier);"),
                  "from an address that is not");
  EXPECT_CONTAINS(message_of("bulk_load(row, arguments.out, 24, barrier);"),
                  "of a size that is not a multiple");
  EXPECT_CONTAINS(message_of("bulk_load(row, arguments.out, -16, barrier);"), "-16 bytes");
  EXPECT_CONTAINS(message_of("bulk_load(row, arguments.out, 80, barrier);"),
                  "not in its block's shared memory");
  EXPECT_CONTAINS(message_of("bulk_load(arguments.out, row, 16, barrier);"),
                  "not in its block's shared memory");
  EXPECT_CONTAINS(message_of("mbarrier_init(barrier);"), "for a second time");
  EXPECT_CONTAINS(
      message_of("for (int i = 0; i < 2; ++i) bulk_load(row + 4 * i, arguments.out, 16, barrier);"),
      "an mbarrier that already has all its 1 arrivals");
  EXPECT_CONTAINS(message_of("mbarrier_wait(barrier, 2);"), "a phase of parity 2");
  EXPECT_CONTAINS(message_of("for (int i = 0; i < 2; ++i) mbarrier_arrive(barrier), bulk_load(row, "
                             "arguments.out, 16, barrier);"),
                  "an mbarrier that already has all its 1 arrivals");
}

// Two rows, chunk after chunk of both through the same memory and the same barrier, to which each load comes.
const std::string two_inputs = R"(#include "device/device.cuh"
struct Arguments { float* out; const float* in; };
using namespace ce;
struct Shared { float first[64], second[64]; Mbarrier filled; };
CE_KERNEL(k, 64) {
  Shared& shared = shared_memory<Shared>();
  if (thread_index() == 0) mbarrier_init(shared.filled, 3);
  float sum = 0.f;
  for (int chunk = 0; chunk < CHUNKS; ++chunk) {
    block_barrier();
    if (thread_index() == 0) bulk_load(shared.first, arguments.in + 64 * chunk, 256, shared.filled);
    if (thread_index() == 40) bulk_load(shared.second, arguments.in + 64 * chunk + 512, 256, shared.filled);
    if (thread_index() == 7) bulk_load(shared.first, arguments.in, 0, shared.filled);  // copies nothing
    if (WAITS) mbarrier_wait(shared.filled, chunk & 1);
    sum += shared.first[63 - thread_index()] * shared.second[thread_index()];
  }
  if (!WAITS) mbarrier_wait(shared.filled, 0);
  arguments.out[block_index() * 64 + thread_index()] = sum;
})";

constexpr Launch two_inputs_launch{.blocks = 3, .threads = 64, .shared_bytes = 2 * 256 + 8};

TEST(HostBulkLoad, SeveralOnOneArrivalEndItsPhaseTogether) {
  const Binary binary = compiled(two_inputs, {"-DCHUNKS=8", "-DWAITS=true"});
  for (int seed = 0; seed < seeds; ++seed) {
    const auto values = row_sums(binary, two_inputs_launch, seed);
    for (std::size_t i = 0; i < values.size(); ++i) {
      float sum = 0.f;
      for (std::size_t chunk = 0; chunk < 8; ++chunk)
        sum += static_cast<float>((64 * chunk + 63 - i % 64) * (64 * chunk + 512 + i % 64));
      ASSERT_EQ(values[i], sum) << seed;
    }
  }
}

TEST(HostBulkLoad, SeveralOnOneArrivalWithoutAWaitGiveNaN) {
  const Binary binary = compiled(two_inputs, {"-DCHUNKS=1", "-DWAITS=false"});
  for (int seed = 0; seed < seeds; ++seed)
    EXPECT_TRUE(std::ranges::all_of(row_sums(binary, two_inputs_launch, seed), is_nan)) << seed;
}

TEST(HostBulkLoad, OneTooFewOnAnArrivalIsAnErrorThatCounts) {
  const std::string text = loading(R"(
  if (first) mbarrier_init(barrier, 2), bulk_load(row, arguments.out, 32, barrier);
  block_barrier();
  mbarrier_wait(barrier);
)");
  EXPECT_CONTAINS(failure_of(text, loading_launch), "a phase of an mbarrier that does not end at " +
                                                        place_of(text, "mbarrier_wait") +
                                                        " after 1 of 2 arrivals");
}

// The loads of one barrier land one by one: the first to land finds that its destination was written to.
TEST(HostBulkLoad, SeveralLandInAnyOrder) {
  const std::string text = loading(R"(
  if (first) {
    mbarrier_init(barrier, 3);
    bulk_load(row, arguments.out, 16, barrier);  // one
    bulk_load(row + 4, arguments.out, 16, barrier);  // two
    bulk_load(row + 8, arguments.out, 16, barrier);  // three
    row[0] = row[4] = row[8] = 0.f;
  }
  block_barrier();
  mbarrier_wait(barrier);
)");
  const Binary binary = compiled(text);
  std::array<int, 3> found{};
  for (int seed = 0; seed < seeds; ++seed) {
    const auto device = open_with_seed(static_cast<std::uint64_t>(seed));
    const std::string message = device_error(FloatKernel(*device, binary), loading_launch);
    EXPECT_CONTAINS(message, "was written to before it landed");
    for (std::size_t i = 0; const char* marker : {"// one", "// two", "// three"})
      found[i++] += message.find(place_of(text, marker)) != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(found[0] + found[1] + found[2], seeds);
  for (const int times : found) EXPECT_GT(times, 0);
}

TEST(HostBulkLoad, TwoUnderWayToTheSameMemoryAreAnErrorThatNamesBoth) {
  for (const char* second : {"row", "row + 4"}) {
    const std::string text = loading(R"(
  if (first) {
    mbarrier_init(barrier, 2);
    bulk_load(row + 4, arguments.out, 16, barrier);  // before
    bulk_load()" + std::string(second) +
                                     R"(, arguments.out, 32, barrier);  // after
  }
)");
    const std::string message = failure_of(text, loading_launch);
    EXPECT_CONTAINS(message, "to memory where the transfer started at " + place_of(text, "// before") +
                                 " has not landed yet");
    EXPECT_CONTAINS(message, place_of(text, "// after"));
  }
}

TEST(HostBulkLoad, WritingWhereOneIsToLandIsAnError) {
  const std::string text = loading(R"(
  if (first) {
    mbarrier_init(barrier);
    bulk_load(row, arguments.out, 64, barrier);
    row[3] = 0.f;
  }
  block_barrier();
  mbarrier_wait(barrier);
)");
  const std::string message = failure_of(text, loading_launch);
  EXPECT_CONTAINS(message, "was written to before it landed");
  EXPECT_CONTAINS(message, place_of(text, "bulk_load("));
}

}  // namespace
}  // namespace ce::runtime::testing
