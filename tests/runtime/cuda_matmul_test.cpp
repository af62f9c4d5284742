#include <gtest/gtest.h>

#include "runtime/cuda/cublaslt.hpp"
#include "tests/runtime/cuda_fixture.hpp"
#include "tests/runtime/matmul_cases.hpp"

namespace ce::runtime::cuda {
namespace {

TEST_F(CudaTest, CublasLtMakesProductsWithAnyOfItsAlgorithms) { test::check_products(*device_, 4); }

TEST_F(CudaTest, CublasLtMakesProductsInTwo) { test::check_split_products(*device_, 4); }

TEST_F(CudaTest, CublasLtGivesTheSameBitsEachTime) {
  const Matmul matmul{.m = 128,
                      .n = 256,
                      .k = 8192,
                      .input = DType::bf16,
                      .output = DType::f32,
                      .a_transposed = true,
                      .a_stride = 128,
                      .b_stride = 256,
                      .d_stride = 256};
  std::mt19937 random(3);
  const test::StoredMatrix a(8192, 128, 0, DType::bf16, random), b(8192, 256, 0, DType::bf16, random);
  Buffer a_memory(*device_, 8192 * 128 * 2), b_memory(*device_, 8192 * 256 * 2),
      d_memory(*device_, 128 * 256 * 4);
  device_->upload(a_memory.data(), test::stored(a.values, DType::bf16).data(), a_memory.size());
  device_->upload(b_memory.data(), test::stored(b.values, DType::bf16).data(), b_memory.size());
  MatmulLibrary& library = device_->matmuls();
  for (const MatmulAlgorithm& algorithm : test::some_algorithms(library, matmul, 16)) {
    const Buffer workspace(*device_, static_cast<std::size_t>(algorithm.workspace_bytes));
    std::vector<std::byte> first;
    for (int i = 0; i < 5; ++i) {
      library.launch(matmul, algorithm,
                     {a_memory.data(), b_memory.data(), nullptr, d_memory.data(), workspace.data()},
                     device_->trial_stream());
      device_->synchronize(device_->trial_stream());
      std::vector<std::byte> bytes(d_memory.size());
      device_->download(bytes.data(), d_memory.data(), bytes.size());
      if (i == 0) first = bytes;
      EXPECT_EQ(bytes, first) << algorithm.text;
    }
  }
}

TEST_F(CudaTest, ProductsNameTheirLibrary) {
  EXPECT_TRUE(device_->matmuls().name().starts_with("cublasLt 1")) << device_->matmuls().name();
}

}  // namespace
}  // namespace ce::runtime::cuda
