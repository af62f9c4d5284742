// Kernels compiled by real workers, through a CUDA device that needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "ce/error.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/cuda/nvrtc.hpp"
#include "tests/environment.hpp"

namespace ce::runtime::cuda {
namespace {

using ::testing::HasSubstr;

// Before anything in this process asks for the driver, which is opened once.
const int replaced = setenv("CE_LIBCUDA", CE_FAKE_DRIVER, 1);

CompileRequest kernel(int factor) {
  return {.name = "scale",
          .text = "#include \"factor.cuh\"\nextern \"C\" __global__ void scale(float* x) { *x *= factor; }\n",
          .headers = {{"factor.cuh", "constexpr float factor = " + std::to_string(factor) + ";\n"}},
          .options = {"-lineinfo"}};
}

CompileRequest broken() {
  return {.name = "broken", .text = "int f() { return undeclared; }\n", .headers = {}, .options = {}};
}

std::string read_and_remove(const std::filesystem::path& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  file.close();
  std::filesystem::remove_all(path.parent_path());
  return text;
}

class WorkerNvrtcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(replaced, 0);
    // Looked for without Nvrtc::shared(): whether the device opens it is a question here.
    if (const Nvrtc::Opened opened = Nvrtc::open(); opened.nvrtc == nullptr) {
      if (test::is_required("CE_REQUIRE_NVRTC")) FAIL() << no_nvrtc(opened.tried);
      GTEST_SKIP() << "no NVRTC on this machine";
    }
    device_ = open_cuda_device(0);
  }
  void TearDown() override {
    device_.reset();
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a worker runs on, or is a zombie";
  }

  const ce::test::ScopedEnvironment worker_{"CE_WORKER", CE_TEST_WORKER};
  const ce::test::ScopedEnvironment workers_{"CE_COMPILE_WORKERS", "2"};
  std::unique_ptr<Device> device_;
};

// First: nothing in this process may have asked for the version.
TEST_F(WorkerNvrtcTest, ADeviceCompilesWithoutOpeningNvrtc) {
  EXPECT_EQ(device_->parallel_compiles(), 2);
  const Binary binary = device_->compile(kernel(2));
  EXPECT_EQ(Nvrtc::if_opened(), nullptr);
  EXPECT_EQ(device_->parallel_compiles(), 2) << "the worker was refused";

  const Nvrtc& nvrtc = Nvrtc::get();
  EXPECT_TRUE(binary.image == nvrtc.compile(kernel(2), 90).image) << "byte for byte";
  EXPECT_FALSE(binary.image == nvrtc.compile(kernel(3), 90).image);
  EXPECT_TRUE(device_->compile(kernel(3)).image == nvrtc.compile(kernel(3), 90).image);
}

TEST_F(WorkerNvrtcTest, ThreadsCompileInSeveralWorkers) {
  std::vector<Binary> binaries(6);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 6; ++i) threads.emplace_back([&, i] { binaries[i] = device_->compile(kernel(i)); });
  }
  EXPECT_EQ(device_->parallel_compiles(), 2);
  for (int i = 0; i < 6; ++i)
    EXPECT_TRUE(binaries[i].image == Nvrtc::get().compile(kernel(i), 90).image) << i;
}

TEST_F(WorkerNvrtcTest, AFailureIsTheSameAsInThisProcess) {
  const auto failure = [](const auto& compile) -> std::pair<std::string, std::string> {
    try {
      static_cast<void>(compile());
    } catch (const CompileError& error) {
      return {error.log(), read_and_remove(error.source_path())};
    }
    return {"compiled", ""};
  };
  const auto [log, source] = failure([&] { return device_->compile(broken()); });
  EXPECT_THAT(log, HasSubstr("undeclared"));
  EXPECT_EQ(source, broken().text);
  EXPECT_EQ(log, failure([] { return Nvrtc::get().compile(broken(), 90); }).first);
  EXPECT_EQ(device_->parallel_compiles(), 2);
}

TEST_F(WorkerNvrtcTest, WarningsComeAlong) {
  CompileRequest request = kernel(2);
  request.text += "__global__ void g() { int unused_variable; }\n";
  EXPECT_THAT(device_->compile(request).log, HasSubstr("unused_variable"));
}

TEST_F(WorkerNvrtcTest, WithoutWorkersItCompilesHere) {
  const std::pair<const char*, const char*> cases[] = {{"CE_COMPILE_WORKERS", "0"},
                                                       {"CE_WORKER", "/bin/false"}};
  for (const auto& [name, value] : cases) {
    const ce::test::ScopedEnvironment chosen(name, value);
    const auto device = open_cuda_device(0);
    EXPECT_TRUE(device->compile(kernel(2)).image == Nvrtc::get().compile(kernel(2), 90).image);
    EXPECT_EQ(device->parallel_compiles(), 1);
  }
}

// The library that this process has opened is the one to use, whatever a worker would find by itself.
TEST_F(WorkerNvrtcTest, TheWorkerOpensTheFileThatThisProcessOpened) {
  static_cast<void>(Nvrtc::get());
  const ce::test::ScopedEnvironment elsewhere("CE_NVRTC", "/no/such/libnvrtc.so.13");
  EXPECT_FALSE(device_->compile(kernel(2)).image.empty());
  EXPECT_EQ(device_->parallel_compiles(), 2) << "the worker was refused";
}

}  // namespace
}  // namespace ce::runtime::cuda
