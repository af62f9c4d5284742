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
  test::check_product(*device, {.m = 3, .n = 5, .k = 0}, 0, 1);
  test::check_product(*device, {.m = 3, .n = 5, .k = 0, .accumulates = true}, 0, 1);
  test::check_product(*device, {.m = 0, .n = 5, .k = 2}, 0, 1);
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
