// What is asked of cuBLASLt, seen from one that needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/cuda/device.hpp"
#include "tests/runtime/cuda_fake_driver.hpp"
#include "tests/runtime/fake_cublaslt.hpp"

namespace ce::runtime::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSupersetOf;

// Before anything in this process asks for them, which are opened once.
const int replaced = setenv("CE_LIBCUDA", CE_FAKE_DRIVER, 1) + setenv("CE_CUBLASLT", CE_FAKE_CUBLASLT, 1);

constexpr const char *whole = "66/tile=0,stages=0,cluster=0,inner=0,split_k=1,swizzle=0,custom=0",
                     *in_order = "66/tile=0,stages=0,cluster=0,inner=0,split_k=2,swizzle=0,custom=0",
                     *in_place =
                         "66/tile=0,stages=0,cluster=0,inner=0,split_k=2,swizzle=0,custom=0,"
                         "reduction=in_place";

struct CublasLtCalls : testing::Test {
  void SetUp() override {
    ASSERT_EQ(replaced, 0);
    fake_cuda(CE_FAKE_DRIVER) = {};
    device = open_cuda_device(0);
  }

  [[nodiscard]] static Matmul product(bool any_order) {
    return {
        .m = 64, .n = 64, .k = 64, .any_order = any_order, .a_stride = 64, .b_stride = 64, .d_stride = 64};
  }
  [[nodiscard]] static std::vector<std::string> texts(const std::vector<MatmulAlgorithm>& algorithms) {
    std::vector<std::string> all;
    for (const MatmulAlgorithm& algorithm : algorithms) all.push_back(algorithm.text);
    return all;
  }

  std::unique_ptr<Device> device;
};

TEST_F(CublasLtCalls, SumsInNoOrderAreLeftOutUnlessTheyAreAskedFor) {
  MatmulLibrary& library = device->matmuls();
  EXPECT_THAT(texts(library.algorithms(product(false), 0, 16)), ElementsAre(whole, in_order));
  EXPECT_EQ(fake_cublaslt(CE_FAKE_CUBLASLT).reductions, 2U);
  EXPECT_THAT(texts(library.algorithms(product(true), 0, 16)), ElementsAre(whole, in_place, in_order))
      << "those that are rounded before never";
  EXPECT_EQ(fake_cublaslt(CE_FAKE_CUBLASLT).reductions, 3U);
}

TEST_F(CublasLtCalls, ATextNamesItsOrder) {
  MatmulLibrary& library = device->matmuls();
  EXPECT_FALSE(library.algorithm(product(false), in_place, 0));
  for (const char* text : {whole, in_order, in_place}) {
    const auto found = library.algorithm(product(true), text, 0);
    ASSERT_TRUE(found) << text;
    EXPECT_EQ(found->text, text);
  }
  EXPECT_FALSE(library.algorithm(product(true), std::string(in_order) + ",reduction=other", 0));
}

TEST_F(CublasLtCalls, NeighboursAreOfBothOrdersWhereAnyWillDo) {
  MatmulLibrary& library = device->matmuls();
  const auto neighbours = [&](const char* of, bool any_order) {
    const Matmul matmul = product(any_order);
    return texts(library.neighbours(matmul, library.algorithm(matmul, of, 0).value(), 0, 24));
  };
  for (const std::string& text : neighbours(in_order, false))
    EXPECT_EQ(text.find("in_place"), std::string::npos) << text;
  EXPECT_THAT(neighbours(whole, true), IsSupersetOf({in_order, in_place}));
  const std::vector<std::string> others = neighbours(in_order, true);
  EXPECT_THAT(others, IsSupersetOf({whole, in_place}));
  EXPECT_THAT(others, testing::Not(testing::Contains(in_order)));
  const std::vector<std::string> of_in_place = neighbours(in_place, true);
  EXPECT_THAT(of_in_place, IsSupersetOf({whole, in_order}));
  EXPECT_THAT(of_in_place, testing::Not(testing::Contains(in_place)));
}

}  // namespace
}  // namespace ce::runtime::cuda
