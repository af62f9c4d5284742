// The CUDA device on a GPU: memory, kernels, times, environment and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>

#include "ce/error.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/cuda/nvrtc.hpp"
#include "tests/runtime/cuda_fixture.hpp"
#include "tests/seed.hpp"

namespace ce::runtime::cuda {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

class CudaDeviceTest : public CudaTest {};

float median(std::vector<float> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

TEST_F(CudaDeviceTest, DescribesItself) {
  const Model& model = device_->model();
  EXPECT_EQ(device_->name(), "cuda:0");
  EXPECT_FALSE(model.is_host());
  EXPECT_GE(model.capability, 75);
  EXPECT_THAT(model.name, ::testing::Not(""));
  EXPECT_GT(model.multiprocessors, 0);
  EXPECT_GT(model.l2_bytes, 1 << 18);
  EXPECT_GE(model.shared_bytes_per_block, 48 << 10);
  EXPECT_GE(model.shared_bytes_per_multiprocessor, model.shared_bytes_per_block);
  EXPECT_GE(model.registers_per_multiprocessor, 1 << 15);
  EXPECT_GE(model.threads_per_multiprocessor, 1024);
  EXPECT_GT(model.memory_bytes, std::int64_t{1} << 30);
  EXPECT_LE(device_->free_bytes(), static_cast<std::size_t>(model.memory_bytes));
  EXPECT_THAT(device_->compiler(), MatchesRegex("nvrtc [0-9]+\\.[0-9]+ (sm|compute)_[0-9]+"));
  EXPECT_THROW(static_cast<void>(open_cuda_device(cuda_device_count())), InvalidArgument);
  EXPECT_THROW(static_cast<void>(open_cuda_device(-1)), InvalidArgument);
}

TEST_F(CudaDeviceTest, StatusListsIt) {
  const CudaStatus status = cuda_status();
  EXPECT_TRUE(status.driver_found);
  ASSERT_EQ(static_cast<int>(status.gpus.size()), cuda_device_count());
  EXPECT_EQ(status.gpus[0].model.key(), device_->model().key());
  EXPECT_EQ(status.gpus[0].uuid, device_->environment().at("uuid"));
  EXPECT_EQ(status.gpus[0].problem, "");
}

TEST_F(CudaDeviceTest, EnvironmentNamesTheGpuAndItsDriver) {
  static_cast<void>(device_->compiler());  // opens NVRTC
  const Environment environment = device_->environment();
  EXPECT_THAT(environment.at("uuid"),
              MatchesRegex("(GPU|MIG)-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+"));
  EXPECT_EQ(environment.at("uuid").size(), 40);
  EXPECT_FALSE(environment.at("driver").empty());
  EXPECT_THAT(environment.at("cuda"), MatchesRegex("[0-9]+\\.[0-9]+"));
  EXPECT_THAT(environment.at("pci"), MatchesRegex("[0-9a-fA-F]+:[0-9a-fA-F]+:[0-9a-fA-F]+\\.[0-9]+"));
  EXPECT_FALSE(environment.at("host").empty());
  EXPECT_THAT(environment.at("nvrtc"), MatchesRegex("[0-9]+\\.[0-9]+"));
  for (const auto& [name, value] : environment) {
    EXPECT_FALSE(value.empty()) << name;
    std::printf("  %s: %s\n", name.c_str(), value.c_str());
  }
}

TEST_F(CudaDeviceTest, MovesBytes) {
  std::mt19937_64 random(ce::test::test_seed());
  std::vector<unsigned char> sent((1 << 20) + 3), received(sent.size());
  std::ranges::generate(sent, [&] { return static_cast<unsigned char>(random()); });
  Buffer first(*device_, sent.size()), second(*device_, sent.size());
  const Stream stream = device_->trial_stream();

  device_->upload(first.data(), sent.data(), sent.size());
  device_->copy(second.data(), first.data(), sent.size(), stream);
  device_->fill(first.data(), 0xa5, sent.size(), stream);
  device_->download(received.data(), second.data(), sent.size());
  EXPECT_EQ(received, sent);
  device_->download(received.data(), first.data(), received.size(), stream);
  device_->synchronize(stream);
  EXPECT_THAT(received, Each(0xa5));
}

TEST_F(CudaDeviceTest, AnEvictionPriorityIsResetAndNothingElse) {
  std::vector<unsigned char> sent((1 << 20) + 77), received(sent.size());
  std::iota(sent.begin(), sent.end(), static_cast<unsigned char>(0));
  Buffer buffer(*device_, sent.size());
  device_->upload(buffer.data(), sent.data(), sent.size());
  for (const std::size_t offset : {0, 1, 127, 128, 5000})
    device_->reset_eviction_priority(buffer.bytes() + offset, buffer.size() - offset,
                                     device_->trial_stream());
  device_->synchronize(device_->trial_stream());
  device_->download(received.data(), buffer.data(), received.size());
  EXPECT_EQ(received, sent);
}

TEST_F(CudaDeviceTest, LaunchesAKernelOnAnyStream) {
  const Loaded add = build("add", add_text);
  std::vector<unsigned> values(1000), expected(values.size());
  std::iota(values.begin(), values.end(), 0u);
  std::ranges::transform(values, expected.begin(), [](unsigned x) { return x + 7 + 7; });
  Buffer buffer(*device_, 4 * values.size());
  device_->upload(buffer.data(), values.data(), buffer.size());
  for (const Stream stream : {device_->trial_stream(), Stream{nullptr}}) {
    launch(add.function, {.blocks = 8, .threads = 128}, AddArguments{buffer.data(), 1000, 7}, stream);
    device_->synchronize(stream);
  }
  device_->download(values.data(), buffer.data(), buffer.size());
  EXPECT_EQ(values, expected);
  const Resources resources = add.module->resources(add.function);
  EXPECT_GT(resources.registers, 0);
  EXPECT_EQ(resources.local_bytes, 0);
  EXPECT_EQ(resources.shared_bytes, 0);
}

TEST_F(CudaDeviceTest, TakesPtxAndOutlivesItsDevice) {
  const Nvrtc& nvrtc = Nvrtc::get();
  const int unknown = device_->model().capability + 1;
  if (!nvrtc.target(unknown).starts_with("compute_")) GTEST_SKIP() << "NVRTC knows the next capability";
  std::unique_ptr<Module> module =
      open_cuda_device(0)->load(nvrtc.compile({"add", add_text, {}, {}}, unknown).image);
  EXPECT_GT(module->resources(module->function("add")).registers, 0);
}

/// The driver's start takes longer than a compilation, and as many as start at once wait for each other.
TEST_F(CudaDeviceTest, CompileWorkersDoNotStartTheDriver) {
  static_cast<void>(build("add", add_text));
  if (device_->parallel_compiles() == 1) GTEST_SKIP() << "no compile workers";
  int workers = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream children(thread.path() / "children");
    for (std::string child; children >> child;) {
      std::ifstream file("/proc/" + child + "/maps");
      const std::string maps(std::istreambuf_iterator<char>(file), {});
      if (maps.find("libnvrtc") == std::string::npos) continue;
      ++workers;
      EXPECT_EQ(maps.find("libcuda.so"), std::string::npos);
    }
  }
  EXPECT_GT(workers, 0);
}

TEST_F(CudaDeviceTest, UsesAllTheSharedMemoryOfABlock) {
  const Loaded shared = build("shared", R"(
struct Arguments { unsigned* out; unsigned bytes; };
extern __shared__ unsigned char dynamic[];
extern "C" __global__ void shared(const __grid_constant__ Arguments arguments) {
  __shared__ unsigned fixed[16];
  fixed[threadIdx.x % 16] = 1;
  dynamic[arguments.bytes - 1] = 42;
  __syncthreads();
  *arguments.out = dynamic[arguments.bytes - 1] + fixed[0];
})");
  EXPECT_EQ(shared.module->resources(shared.function).shared_bytes, 64);
  const auto most = static_cast<std::uint32_t>(device_->model().shared_bytes_per_block - 64);
  const Launch geometry = {.blocks = 1, .threads = 32, .shared_bytes = most};
  EXPECT_TRUE(device_->fits(shared.function, geometry));
  EXPECT_FALSE(device_->fits(shared.function, {.blocks = 1, .threads = 32, .shared_bytes = most + 1}));
  Buffer buffer(*device_, 4);
  struct {
    void* out;
    std::uint32_t bytes;
  } const arguments = {buffer.data(), most};
  launch(shared.function, geometry, arguments, device_->trial_stream());
  std::uint32_t result = 0;
  device_->download(&result, buffer.data(), 4);
  EXPECT_EQ(result, 43);
}

TEST_F(CudaDeviceTest, KnowsWhichGeometriesFit) {
  const Loaded bounded = build("bounded", "extern \"C\" __global__ void __launch_bounds__(128) bounded() {}");
  EXPECT_TRUE(device_->fits(bounded.function, {.blocks = 1, .threads = 128}));
  EXPECT_FALSE(device_->fits(bounded.function, {.blocks = 1, .threads = 256}));
  EXPECT_FALSE(device_->fits(bounded.function, {.blocks = 0, .threads = 128}));
  EXPECT_FALSE(device_->fits(bounded.function, {.blocks = 3, .threads = 128, .cluster = 2}));
  EXPECT_FALSE(device_->fits(bounded.function, {.blocks = 64, .threads = 128, .cluster = 64}));
  EXPECT_EQ(device_->fits(bounded.function, {.blocks = 4, .threads = 128, .cluster = 2}),
            device_->model().capability >= 90);
  device_->launch(bounded.function, {.blocks = 1, .threads = 128}, nullptr, 0, device_->trial_stream());
  device_->synchronize(device_->trial_stream());
}

TEST_F(CudaDeviceTest, LaunchesClusters) {
  if (device_->model().capability < 90) GTEST_SKIP() << "clusters need compute capability 9.0";
  const Loaded cluster = build("cluster", R"(
struct Arguments { unsigned* out; };
extern "C" __global__ void cluster(const __grid_constant__ Arguments arguments) {
  unsigned rank, size;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  if (threadIdx.x == 0) arguments.out[blockIdx.x] = 100 * size + rank;
})");
  constexpr std::uint32_t blocks = 32;
  Buffer buffer(*device_, 4 * blocks);
  for (const std::uint32_t size : {1u, 2u, 4u, 8u, 16u}) {
    const Launch geometry = {.blocks = blocks, .threads = 64, .cluster = size};
    if (size == 16 && !device_->fits(cluster.function, geometry)) continue;  // not on every such GPU
    EXPECT_TRUE(device_->fits(cluster.function, geometry)) << size;
    struct {
      void* out;
    } const arguments = {buffer.data()};
    launch(cluster.function, geometry, arguments, device_->trial_stream());
    std::vector<std::uint32_t> ranks(blocks);
    device_->download(ranks.data(), buffer.data(), buffer.size());
    for (std::uint32_t block = 0; block < blocks; ++block)
      EXPECT_EQ(ranks[block], 100 * size + block % size) << "cluster " << size << ", block " << block;
  }
}

TEST_F(CudaDeviceTest, TimesWhatIsTimedAndNothingElse) {
  const Loaded wait = build("wait", wait_text);
  const auto wait_for = [&](unsigned long long microseconds) {
    launch(wait.function, {}, microseconds, device_->trial_stream());
  };
  int before = 0, timed = 0;
  std::vector<float> times = device_->time(
      10, [&] { ++before; }, [&] { ++timed, wait_for(300); });
  EXPECT_EQ(times.size(), 10);
  EXPECT_EQ(before, 10);
  EXPECT_EQ(timed, 10);
  EXPECT_THAT(times, Each(Ge(295.0f)));
  EXPECT_LT(median(times), 330);

  times = device_->time(
      10, [&] { wait_for(500); }, [&] { wait_for(0); });
  EXPECT_LT(median(times), 50) << "before() is not to be timed";
  EXPECT_TRUE(device_
                  ->time(
                      0, [] {}, [] {})
                  .empty());
}

TEST_F(CudaDeviceTest, TimesShortKernelsWithoutTheHostsPart) {
  const Loaded empty = build("empty", "extern \"C\" __global__ void empty() {}");
  const auto launch_empty = [&] { device_->launch(empty.function, {}, nullptr, 0, device_->trial_stream()); };
  // The host needs microseconds for a launch, the GPU far less.
  const std::vector<float> times = device_->time(
      300, [] {}, launch_empty);
  ASSERT_EQ(times.size(), 300);
  EXPECT_THAT(times, Each(Ge(0.0f)));
  EXPECT_LT(median(times), 15);
  std::printf("  an empty kernel: %.2f us\n", median(times));
}

TEST_F(CudaDeviceTest, ErrorsNameTheCallAndTheReason) {
  const auto message_of = [](const auto& action) -> std::string {
    try {
      action();
    } catch (const DeviceError& error) {
      EXPECT_NE(error.code(), 0);
      return error.what();
    }
    return "no error";
  };
  const Loaded add = build("add", add_text);
  EXPECT_THAT(message_of([&] {
                launch(add.function, {.blocks = 1, .threads = 4096}, AddArguments{nullptr, 0, 0}, nullptr);
              }),
              AllOf(HasSubstr("threads=4096"), HasSubstr("CUDA_ERROR_")));
  EXPECT_THAT(message_of([&] { static_cast<void>(device_->allocate(std::size_t{1} << 46)); }),
              AllOf(HasSubstr("cuMemAlloc(70368744177664 bytes)"), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY")));
  EXPECT_THAT(message_of([&] { static_cast<void>(add.module->function("absent")); }),
              AllOf(HasSubstr("absent"), HasSubstr("CUDA_ERROR_NOT_FOUND")));
  std::vector<std::byte> garbage(64, std::byte{'x'});
  EXPECT_THROW(static_cast<void>(device_->load(garbage)), DeviceError);
  garbage.back() = std::byte{0};
  EXPECT_THAT(message_of([&] { static_cast<void>(device_->load(garbage)); }), HasSubstr("CUDA_ERROR_"));
  EXPECT_THROW(static_cast<void>(device_->load({})), DeviceError);
}

TEST_F(CudaDeviceTest, AFaultIsReportedAndNothingThrowsAfterwards) {
  // A process of its own: the fault spoils the context for good.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        {
          const Loaded add = build("add", add_text);
          const Buffer buffer(*device_, 64);
          launch(add.function, {.blocks = 1, .threads = 32}, AddArguments{nullptr, 32, 1},
                 device_->trial_stream());
          try {
            device_->synchronize(device_->trial_stream());
          } catch (const DeviceError& error) {
            std::fputs(error.what(), stderr);
          }
        }
        device_.reset();
        std::exit(3);
      },
      ::testing::ExitedWithCode(3), "cuStreamSynchronize.*CUDA_ERROR_ILLEGAL_ADDRESS");
}

}  // namespace
}  // namespace ce::runtime::cuda
