// A machine without a CUDA driver, whatever this one has: CE_LIBCUDA names a library that does not exist.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "ce/error.hpp"
#include "runtime/cuda/device.hpp"

namespace {

using namespace ce::runtime;
using ::testing::HasSubstr;

// Before anything in this process asks for the driver, which is opened once.
const int replaced = setenv("CE_LIBCUDA", "libce-no-such-driver.so.1", 1);

TEST(NoDriver, ThereIsNoDevice) {
  ASSERT_EQ(replaced, 0);
  EXPECT_EQ(cuda_device_count(), 0);
  EXPECT_EQ(current_cuda_device(), std::nullopt);
}

TEST(NoDriver, OpeningADeviceNamesTheMissingLibrary) {
  try {
    static_cast<void>(open_cuda_device(0));
    FAIL() << "opened";
  } catch (const ce::Unsupported& error) {
    EXPECT_THAT(error.what(), HasSubstr("libcuda.so.1"));
    EXPECT_THAT(error.what(), HasSubstr("libce-no-such-driver.so.1"));
  }
}

TEST(NoDriver, StatusSaysWhy) {
  const CudaStatus status = cuda_status();
  EXPECT_FALSE(status.driver_found);
  EXPECT_THAT(status.driver_problem, HasSubstr("libcuda.so.1"));
  EXPECT_TRUE(status.gpus.empty());
  EXPECT_EQ(status.nvrtc_found, !status.nvrtc_version.empty());
  EXPECT_TRUE(status.nvrtc_found || !status.nvrtc_tried.empty());
}

TEST(NoDriver, ALibraryWithoutTheDriversFunctionsIsTooOld) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own, whose first driver it is
  EXPECT_EXIT(
      {
        setenv("CE_LIBCUDA", "libm.so.6", 1);
        std::fputs(cuda_status().driver_problem.c_str(), stderr);
        std::exit(3);
      },
      ::testing::ExitedWithCode(3), "the driver is too old: libm.so.6 has no function cuInit");
}

}  // namespace
