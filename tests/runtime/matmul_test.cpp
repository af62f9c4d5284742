#include "runtime/matmul.hpp"

#include <gtest/gtest.h>

#include "runtime/host/device.hpp"
#include "tests/runtime/matmul_cases.hpp"

namespace ce::runtime {
namespace {

TEST(Matmul, TheHostDeviceMakesProducts) {
  const std::unique_ptr<Device> device = open_host_device();
  test::check_products(*device, 1);
}

TEST(Matmul, AProductOfNothingIsWhatWasThere) {
  const std::unique_ptr<Device> device = open_host_device();
  test::check_product(*device, device->matmuls(), {.m = 3, .n = 5, .k = 0}, 0, 1);
  test::check_product(*device, device->matmuls(), {.m = 3, .n = 5, .k = 0, .accumulates = true}, 0, 1);
  test::check_product(*device, device->matmuls(), {.m = 0, .n = 5, .k = 2}, 0, 1);
}

TEST(Matmul, OneWhoseSizesAreMultiplesOfNothingIsMadeInTwo) {
  const std::unique_ptr<Device> device = open_host_device();
  test::check_split_products(*device, 2);
}

TEST(Matmul, IsMadeInOneWhereTwoWouldNotHelp) {
  const Matmul gpt2{.m = 4096,
                    .n = 2048,
                    .k = 50257,
                    .input = DType::bf16,
                    .output = DType::f32,
                    .a_stride = 50304,
                    .b_stride = 2048,
                    .d_stride = 2048};
  const auto halves = split(gpt2, SplitMatmuls::worth_it);
  ASSERT_TRUE(halves);
  EXPECT_EQ(halves->main.k, 50256);
  EXPECT_EQ(halves->rest.k, 1);
  EXPECT_FALSE(halves->rest.accumulates);
  EXPECT_TRUE(halves->main.accumulates) << "adds to what the rest has left";
  const auto in_one = [&](auto change) {
    Matmul matmul = gpt2;
    change(matmul);
    return !split(matmul, SplitMatmuls::worth_it);
  };
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.k = 50256; })) << "a multiple of 8";
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.m = 16; })) << "too small";
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.input = matmul.output = DType::f32; })) << "no tensor cores";
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.output = DType::bf16; })) << "rounds in between";
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.a_stride = 50257; })) << "rows that begin anywhere";
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.b_stride = 2049; })) << "rows that begin anywhere";
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.d_stride = 2049; })) << "rows that begin anywhere";
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.alignment = 8; })) << "matrices that begin anywhere";
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.n = 2047; })) << "two sizes at once";
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.a_transposed = true; })) << "rows of m and n alone";
}

TEST(Matmul, TheKeyNamesAllThatTellsProductsApart) {
  const Matmul plain{.m = 4,
                     .n = 6,
                     .k = 8,
                     .input = DType::bf16,
                     .output = DType::bf16,
                     .a_stride = 8,
                     .b_stride = 6,
                     .d_stride = 6};
  EXPECT_EQ(plain.key(), "matmul bf16 m=4 n=6 k=8 a=row:8 b=row:6 d=bf16:6 align=16");
  Matmul other = plain;
  other.output = DType::f32;
  other.a_transposed = other.b_transposed = other.accumulates = other.bias = true;
  other.alignment = 256;
  EXPECT_EQ(other.key(), "matmul bf16 m=4 n=6 k=8 a=col:8 b=col:6 d=f32:6 add bias align=256");
}

TEST(Matmul, TheAlignmentIsThatOfTheLeastAlignedAddress) {
  const auto at = [](std::uintptr_t address) {
    return reinterpret_cast<const void*>(address);  // NOLINT(performance-no-int-to-ptr)
  };
  EXPECT_EQ(alignment_of({at(512), at(1024)}), 256);
  EXPECT_EQ(alignment_of({at(512), at(1024 + 48)}), 16);
  EXPECT_EQ(alignment_of({at(514), at(1024)}), 2);
  EXPECT_EQ(alignment_of({at(0)}), 256);
}

}  // namespace
}  // namespace ce::runtime
