// What a warm call through the C interface asks the driver: what the same call asks in C++, and no more.
#include <ce/ce.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "cache/cache.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/cuda/driver.hpp"
#include "tests/ce/known_winner.hpp"
#include "tests/runtime/cuda_fake_driver.hpp"
#include "tests/tuner/fixture.hpp"
#include "tuner/ranking.hpp"

namespace ce::test {
namespace {

using runtime::cuda::Driver;
using testing::ElementsAre;
using testing::StartsWith;

constexpr std::int64_t rows = 192, columns = 128;

class HotPathOfC : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder.emplace();
    const std::string file = folder->path() / "ce.db";
    ::setenv("CE_LIBCUDA", CE_FAKE_DRIVER, 1);
    ::setenv("CE_DB", file.c_str(), 1);
    ::setenv("CE_POLICY", "lookup", 1);
    ::unsetenv("CE_DEVICE");
    // Closed before the library, which has a SQLite of its own, opens it.
    cache::Cache cache = cache::Cache::open(file);
    const auto device = runtime::open_cuda_device(0);
    const generator::Problem problem{
        .operation = generator::Operation::softmax, .rows = rows, .columns = columns};
    know_winner(cache, *device, problem, tuner::ranked_space(problem, device->model()).at(0));
  }
  static void TearDownTestSuite() { folder.reset(); }

  HotPathOfC() {
    CE_CUDA_CHECK(driver, cuDevicePrimaryCtxRetain(&gpu, 0));
    CE_CUDA_CHECK(driver, cuCtxPushCurrent(gpu));
  }
  ~HotPathOfC() override {
    static_cast<void>(driver.cuCtxPopCurrent(&gpu));
    static_cast<void>(driver.cuDevicePrimaryCtxRelease(0));
  }

  template <class Call>
  static std::vector<std::string_view> asked_by(const Call& call) {
    fake_cuda_calls(CE_FAKE_DRIVER) = {};
    EXPECT_EQ(call(), CE_STATUS_SUCCESS) << ce_last_error();
    return fake_cuda_calls(CE_FAKE_DRIVER).list();
  }

  static inline std::optional<Folder> folder;
  const Driver& driver = *Driver::get().driver;
  CUcontext gpu = nullptr;
  ce_tensor input = ce_matrix(fake_address(of_gpu_0), CE_DTYPE_F32, rows, columns);
  ce_tensor output = ce_matrix(fake_address(of_gpu_0, rows* columns * 4), CE_DTYPE_F32, rows, columns);
  ce_softmax_tensors tensors = {sizeof(ce_softmax_tensors), &input, &output};
};

TEST_F(HotPathOfC, RunAsksForTheContextAndLaunches) {
  const auto call = [&] { return ce_softmax(nullptr, nullptr, &tensors, nullptr, nullptr); };
  const ce_choice* choice = nullptr;
  ASSERT_EQ(ce_softmax(nullptr, nullptr, &tensors, nullptr, &choice), CE_STATUS_SUCCESS) << ce_last_error();
  EXPECT_EQ(ce_choice_origin(choice), CE_ORIGIN_DATABASE);
  EXPECT_THAT(asked_by(call), ElementsAre("cuCtxGetCurrent", StartsWith("cuLaunchKernel")));
}

TEST_F(HotPathOfC, APlanOnlyLaunches) {
  ce_plan* plan = nullptr;
  ASSERT_EQ(ce_softmax_prepare(nullptr, nullptr, &tensors, nullptr, &plan), CE_STATUS_SUCCESS);
  EXPECT_THAT(asked_by([&] { return ce_plan_run(plan, nullptr); }),
              ElementsAre("cuCtxGetCurrent", StartsWith("cuLaunchKernel")));
  ce_plan_destroy(plan);
}

}  // namespace
}  // namespace ce::test
