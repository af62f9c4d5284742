// The host device as a Device: what it says of itself, compiling, loading, memory, and kernels that are
// right.

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "ce/error.hpp"
#include "runtime/host/compiler.hpp"
#include "runtime/host/device.hpp"
#include "runtime/host/guard.hpp"
#include "tests/runtime/host_fixture.hpp"

namespace ce::runtime::testing {
namespace {

using namespace std::string_literals;

const std::string header = R"(#include "device/device.cuh"
struct Arguments { float* out; };
)";

TEST(HostDevice, SaysWhatItIs) {
  const auto device = open_host_device();
  const Model& model = device->model();
  EXPECT_TRUE(model.name.starts_with("host:")) << model.name;
  EXPECT_NE(model.name.find(" cores "), std::string::npos) << model.name;
  EXPECT_TRUE(model.is_host());
  EXPECT_GT(model.multiprocessors, 0);
  EXPECT_GT(device->free_bytes(), 0u);
  EXPECT_EQ(device->name(), "host");
  EXPECT_EQ(device->environment().at("seed"), "1");
  EXPECT_FALSE(device->environment().at("kernel").empty());
  EXPECT_NE(model.name.find(device->environment().at("compiler")), std::string::npos);
  EXPECT_TRUE(device->compiler().starts_with(device->environment().at("compiler")));
}

TEST(HostDevice, ThreadsKnowTheirPlace) {
  const auto device = open_host_device();
  const FloatKernel kernel(*device, header + R"(
CE_KERNEL(k, 128) {
  using namespace ce;
  const bool right = lane_index() == thread_index() % 32 && warp_index() == thread_index() / 32;
  arguments.out[block_index() * 64 + thread_index()] =
      right ? float(block_index() * 1000 + thread_index() + 100000 * block_count()) : -1.f;
})");
  for (const std::uint32_t cluster : {1u, 4u}) {
    const auto values = kernel({.blocks = 200, .threads = 64, .cluster = cluster});
    for (int i = 0; i < 200 * 64; ++i)
      ASSERT_EQ(values[i], static_cast<float>(i / 64 * 1000 + i % 64 + 100000 * 200)) << i;
  }
}

TEST(HostDevice, ShufflesAndBroadcastsMoveValuesBetweenLanes) {
  const auto device = open_host_device();
  const FloatKernel kernel(*device, header + R"(
CE_KERNEL(k, 64) {
  using namespace ce;
  const int lane = lane_index();
  bool right = true;
  for (int mask = 0; mask < 32; ++mask) {
    right &= shuffle_xor(float(lane), mask) == float(lane ^ mask);
    right &= shuffle_xor(int64(lane) << 40, mask) == int64(lane ^ mask) << 40;
    right &= warp_maximum(lane == mask ? 2.f : lane < mask ? -1.f : -infinity()) == 2.f;
    right &= warp_maximum(lane == mask ? -0.5f : -infinity()) == -0.5f;
  }
  float sum = float(thread_index());
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  arguments.out[thread_index()] = right ? sum : -1.f;
})");
  for (int t = 0; const float value : kernel({.threads = 64}))
    EXPECT_EQ(value, t++ < 32 ? 31.f * 16 : 31.f * 16 + 32 * 32);
}

TEST(HostDevice, BlocksReduceThroughSharedMemory) {
  const auto device = open_host_device();
  const FloatKernel kernel(*device, header + R"(
struct Shared { float sums[32]; };
CE_KERNEL(k, 1024) {
  using namespace ce;
  Shared& shared = shared_memory<Shared>();
  float sum = float(thread_index()) + float(block_index());
  for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  if (lane_index() == 0) shared.sums[warp_index()] = sum;
  block_barrier();
  sum = shared.sums[lane_index()];
  for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  arguments.out[block_index() * 1024 + thread_index()] = sum;
})");
  const auto values = kernel({.blocks = 20, .threads = 1024, .shared_bytes = 128});
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], 1023.f * 512 + 1024 * static_cast<float>(i / 1024)) << i;
}

TEST(HostDevice, ArithmeticIsThatOfAGpu) {
  const auto device = open_host_device();
  const FloatKernel kernel(*device, header + R"(
CE_KERNEL(k, 32) {
  using namespace ce;
  const float nan = not_a_number();
  bool right = exp2(3.f) == 8.f && exp2(-126.f) == 0x1p-126f && exp2(-127.f) == 0.f && exp2(-infinity()) == 0.f;
  right = right && exp2(infinity()) == infinity() && exp2(nan) != exp2(nan) && log(1.f) == 0.f;
  right = right && log(0.f) == -infinity() && log(8.f) / log(2.f) == 3.f;
  right = right && log2(1.f) == 0.f && log2(0.f) == -infinity() && log2(0x1p-127f) == -infinity() && log2(-1.f) != log2(-1.f);
  right = right && log2(8.f) != 3.f && absolute(log2(8.f) - 3.f) <= 3 * 0x1.8p-22f;
  right = right && maximum(1.f, 2.f) == 2.f && maximum(nan, 2.f) == 2.f && maximum(1.f, nan) == 1.f;
  right = right && maximum(nan, nan) != maximum(nan, nan);
  right = right && to_float(from_float<f16>(1.5f)) == 1.5f && from_float<bf16>(-2.f).bits == 0xc000;
  right = right && to_float(from_float<f32>(0.1f)) == 0.1f && pack<f16>(1.f, -2.f) == 0xc0003c00u;
  right = right && unpack<bf16>(0xc0003f80u).low == 1.f && unpack<bf16>(0xc0003f80u).high == -2.f;
  arguments.out[thread_index()] = right ? 1.f : 0.f;
})");
  for (const float value : kernel({.threads = 32})) EXPECT_EQ(value, 1.f);
}

TEST(HostDevice, ArithmeticOfOptionsIsExactWhereItCanBe) {
  const auto device = open_host_device();
  const FloatKernel kernel(*device, header + R"(
CE_KERNEL(k, 32) {
  using namespace ce;
  bool right = log1p(0x1p-40f) == 0x1p-40f && log1p(-1.f) == -infinity() && log1p(-0.f) == 0.f;
  right = right && expm1(0x1p-40f) == 0x1p-40f && expm1(-infinity()) == -1.f && expm1(infinity()) == infinity();
  right = right && reciprocal(4.f) == 0.25f && reciprocal(infinity()) == 0.f && reciprocal(-0.f) == -infinity();
  // One rounding: a product rounded first would leave 0.
  right = right && multiply_add(1.f + 0x1p-12f, 1.f - 0x1p-12f, -1.f) == -0x1p-24f;
  right = right && absolute(-3.f) == 3.f && absolute(-infinity()) == infinity();
  right = right && absolute(not_a_number()) != absolute(not_a_number());
  arguments.out[thread_index()] = right ? 1.f : 0.f;
})");
  for (const float value : kernel({.threads = 32})) EXPECT_EQ(value, 1.f);
}

// Each half on its own: of numbers the larger, of a number and a NaN the number, of NaNs a NaN.
TEST(HostDevice, MaximaOfPairsPreferNumbersToNaN) {
  const auto device = open_host_device();
  const FloatKernel kernel(*device, header + R"(
using namespace ce;
template <class T>
CE_DEVICE bool is_right() {
  const uint32 nan = from_float<T>(not_a_number()).bits;
  const auto halves = [](uint32 low, uint32 high) { return low | high << 16; };
  const auto bits = [](float x) -> uint32 { return from_float<T>(x).bits; };
  const uint32 one = bits(1.f), two = bits(2.f), least = bits(-infinity()), smallest = 1;  // a subnormal
  bool right = maximum_pair<T>(halves(one, two), halves(two, one)) == halves(two, two);
  right = right && maximum_pair<T>(halves(nan, one), halves(two, nan)) == halves(two, one);
  right = right && maximum_pair<T>(halves(least, nan), halves(nan, least)) == halves(least, least);
  right = right && maximum_pair<T>(halves(bits(-2.f), least), halves(bits(-1.f), smallest)) ==
                       halves(bits(-1.f), smallest);
  const Float2 both = unpack<T>(maximum_pair<T>(halves(nan, one), halves(nan, two)));
  return right && both.low != both.low && both.high == 2.f;
}
CE_KERNEL(k, 32) { arguments.out[thread_index()] = is_right<f16>() && is_right<bf16>() ? 1.f : 0.f; })");
  for (const float value : kernel({.threads = 32})) EXPECT_EQ(value, 1.f);
}

// Each half on its own; NaN is none that a bound can be put in place of.
TEST(HostDevice, BoundsOfPairsKeepNaN) {
  const auto device = open_host_device();
  const FloatKernel kernel(*device, header + R"(
using namespace ce;
template <class T>
CE_DEVICE bool is_right() {
  const uint32 nan = from_float<T>(not_a_number()).bits;
  const auto halves = [](uint32 low, uint32 high) { return low | high << 16; };
  const auto bits = [](float x) -> uint32 { return from_float<T>(x).bits; };
  const uint32 one = bits(1.f), bound = bits(-4096.f), least = bits(-infinity()), most = bits(infinity());
  bool right = at_least_pair<T>(halves(one, least), halves(bound, bound)) == halves(one, bound);
  right = right && at_least_pair<T>(halves(bits(-8192.f), most), halves(bound, bound)) == halves(bound, most);
  right = right && at_least_pair<T>(halves(bits(-2.f), bits(-3.f)), halves(bits(-3.f), bits(-2.f))) ==
                       halves(bits(-2.f), bits(-2.f));
  const Float2 both = unpack<T>(at_least_pair<T>(halves(nan, least), halves(bound, bound)));
  return right && both.low != both.low && both.high == -4096.f;
}
CE_KERNEL(k, 32) { arguments.out[thread_index()] = is_right<f16>() && is_right<bf16>() ? 1.f : 0.f; })");
  for (const float value : kernel({.threads = 32})) EXPECT_EQ(value, 1.f);
}

TEST(HostDevice, LoadsStoresAndAtomicsReachMemory) {
  const auto device = open_host_device();
  const auto module = device->load(device
                                       ->compile(request(R"(#include "device/device.cuh"
struct Arguments { const unsigned* in; unsigned* out; ce::f16* halves; long long* counters; };
CE_KERNEL(k, 32) {
  using namespace ce;
  const int64 i = block_index() * 32 + thread_index();
  store<Store::cs>(arguments.out + 4 * i, load<Load::cg, 4>(arguments.in + 4 * i));
  const f16 half = load_element<Load::cs>(reinterpret_cast<const f16*>(arguments.in) + i);
  store_element<Store::wt>(arguments.halves + i, half);
  atomic_add(arguments.counters, i);
  atomic_min(arguments.counters + 1, -i);
  device_fence();
})"))
                                       .image);
  constexpr int blocks = 300;
  constexpr int count = blocks * 32;
  std::vector<std::uint32_t> in(std::size_t{4} * count);
  std::iota(in.begin(), in.end(), 7u);
  const Buffer input(*device, in.size() * 4);
  const Buffer output(*device, in.size() * 4);
  const Buffer halves(*device, std::size_t{2} * count);
  const Buffer counters(*device, 16);
  device->upload(input.data(), in.data(), input.size());
  device->fill(counters.data(), 0, 16, nullptr);
  const std::array<void*, 4> arguments = {input.data(), output.data(), halves.data(), counters.data()};
  device->launch(module->function("k"), {.blocks = blocks, .threads = 32}, arguments.data(), sizeof arguments,
                 nullptr);
  EXPECT_EQ(std::memcmp(output.data(), in.data(), output.size()), 0);
  EXPECT_EQ(std::memcmp(halves.data(), in.data(), halves.size()), 0);
  std::array<long long, 2> counted{};
  device->download(counted.data(), counters.data(), sizeof counted);
  EXPECT_EQ(counted[0], count * (count - 1LL) / 2);
  EXPECT_EQ(counted[1], 1LL - count);
}

TEST(HostDevice, UnwrittenMemoryIsNaN) {
  const auto device = open_host_device();
  const FloatKernel shared(*device, header + R"(
CE_KERNEL(k, 32) { arguments.out[ce::thread_index()] = ce::shared_memory<float[32]>()[ce::thread_index()]; })");
  for (const float value : shared({.threads = 32, .shared_bytes = 128})) EXPECT_TRUE(std::isnan(value));
  const FloatKernel nothing(*device, header + "CE_KERNEL(k, 32) {}");
  for (const float value : nothing({.threads = 32})) EXPECT_TRUE(std::isnan(value));
}

TEST(HostDevice, AModuleLoadedAfterAnotherWasUnloadedIsTheNewOne) {
  const auto device = open_host_device();
  for (int version = 0; version < 5; ++version) {
    const FloatKernel kernel(*device, header + R"(
CE_KERNEL(k, 32) { arguments.out[ce::thread_index()] = VERSION; })",
                             {"-DVERSION=" + std::to_string(version)});
    EXPECT_EQ(kernel({.threads = 32})[0], static_cast<float>(version));
  }
}

TEST(HostDevice, LoadRefusesWhatIsNoKernel) {
  const auto device = open_host_device();
  const std::vector<std::byte> noise(1000, std::byte{7});
  EXPECT_THROW((void)device->load(noise), DeviceError);
  const auto module = device->load(device->compile(request(header + "CE_KERNEL(k, 32) {}")).image);
  EXPECT_THROW((void)module->function("other"), DeviceError);
}

TEST(HostDevice, KnowsWhichGeometriesFit) {
  const auto device = open_host_device();
  const auto module = device->load(device->compile(request(header + "CE_KERNEL(k, 64) {}")).image);
  const Function kernel = module->function("k");
  EXPECT_TRUE(device->fits(kernel, {.threads = 64, .shared_bytes = 227 * 1024}));
  EXPECT_TRUE(device->fits(kernel, {.blocks = 8, .threads = 32, .cluster = 4}));
  EXPECT_FALSE(device->fits(kernel, {.threads = 96})) << "more than the entry point was compiled for";
  EXPECT_FALSE(device->fits(kernel, {.threads = 48}));
  EXPECT_FALSE(device->fits(kernel, {.threads = 64, .shared_bytes = 227 * 1024 + 1}));
  EXPECT_FALSE(device->fits(kernel, {.blocks = 9, .threads = 32, .cluster = 4}));
  EXPECT_THROW(device->launch(kernel, {.threads = 96}, nullptr, 0, nullptr), DeviceError);
}

TEST(HostGuard, AnyByteOfItShows) {
  std::array<std::byte, 64> zone{};
  host::write_guard(zone);
  EXPECT_TRUE(host::guard_is_intact(zone));
  for (std::byte& byte : zone) {
    byte ^= std::byte{1};
    EXPECT_FALSE(host::guard_is_intact(zone)) << &byte - zone.data();
    byte ^= std::byte{1};
  }
  host::write_nan(zone);
  EXPECT_FALSE(host::guard_is_intact(zone)) << "written over as a whole";
}

TEST(HostDevice, TimesEachSample) {
  const auto device = open_host_device();
  int before = 0;
  const auto times = device->time(
      3, [&] { ++before; }, [] { ::usleep(2000); });
  EXPECT_EQ(before, 3);
  ASSERT_EQ(times.size(), 3u);
  for (const float microseconds : times) EXPECT_GE(microseconds, 2000.f);
}

TEST(HostDevice, RefusesASeedThatIsNoNumber) {
  const ScopedEnvironment environment("CE_HOST_SEED", "12x");
  EXPECT_THROW((void)open_host_device(), InvalidArgument);
}

TEST(HostCompiler, WarnsNotOfPragmasThatAreCudaOnly) {
  const auto device = open_host_device();
  const Binary binary = device->compile(request(header + R"(
CE_KERNEL(k, 32) {
#pragma unroll
  for (int i = 0; i < 4; ++i) arguments.out[i] = 1.f;
})"));
  EXPECT_EQ(binary.log, "");
}

TEST(HostCompiler, KeepsTheSourceThatDoesNotCompileAndItsLog) {
  const auto device = open_host_device();
  const std::string text = header + "CE_KERNEL(k, 32) { arguments.out[0] = no_such_thing; }";
  try {
    (void)device->compile(request(text));
    FAIL() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_NE(error.log().find("no_such_thing"), std::string::npos) << error.log();
    const std::filesystem::path source = error.source_path();
    std::ifstream file(source);
    const std::string kept{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    EXPECT_EQ(kept, text);
    EXPECT_EQ(std::filesystem::status(source.parent_path()).permissions(), std::filesystem::perms::owner_all);
    std::filesystem::remove_all(source.parent_path());
  }
}

TEST(HostCompiler, RefusesAFrameThatNoFiberHasRoomFor) {
  const auto device = open_host_device();
  try {
    (void)device->compile(request(header + R"(
CE_KERNEL(k, 32) {
  volatile float large[20000];
  large[ce::thread_index()] = 1.f;
  arguments.out[0] = large[ce::thread_index() + 1];
})"));
    FAIL() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_NE(error.log().find("frame"), std::string::npos) << error.log();
    std::filesystem::remove_all(std::filesystem::path(error.source_path()).parent_path());
  }
}

TEST(HostCompiler, RefusesHeadersOutsideTheSourcesFolder) {
  const auto device = open_host_device();
  CompileRequest bad = request("");
  bad.headers["../escape.cuh"] = "";
  EXPECT_THROW((void)device->compile(bad), InvalidArgument);
}

TEST(HostCompiler, WithoutACompilerTheDeviceOpensAndSaysHowToGetOne) {
  const ScopedEnvironment environment("CE_HOST_COMPILER", "/nonexistent");
  const auto device = open_host_device();
  EXPECT_THROW((void)device->compiler(), Unsupported);
  try {
    (void)device->compile(request(""));
    FAIL() << "compiled";
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("CE_HOST_COMPILER"), std::string::npos) << error.what();
  }
}

TEST(HostCompiler, EndsACompilerThatDoesNotEnd) {
  const auto folder = std::filesystem::temp_directory_path() / ("ce-test-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::filesystem::path script = folder / "slow";
  std::ofstream(script)
      << "#!/bin/sh\n[ \"$1\" = --version ] && echo 'g++ (Test 1-2) 1.2.3' && exit\nsleep 60\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  const ScopedEnvironment environment("CE_HOST_COMPILER", script.c_str());
  const host::Compiler compiler;
  EXPECT_EQ(compiler.version(), "g++ 1.2.3");
  const auto start = std::chrono::steady_clock::now();
  try {
    (void)compiler.compile(request(""), std::chrono::milliseconds(200));
    ADD_FAILURE() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_NE(error.log().find("killed because it did not end within 200 ms"), std::string::npos)
        << error.log();
    std::filesystem::remove_all(std::filesystem::path(error.source_path()).parent_path());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ce::runtime::testing
