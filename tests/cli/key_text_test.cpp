#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ce/error.hpp"
#include "generator/problem.hpp"

namespace ce::generator {
namespace {

void expect_round_trip(const Problem& problem) {
  const std::string text = key_text(problem);
  Problem expected = bucketed(problem);
  EXPECT_EQ(parse_key_text(text), expected) << text;
  EXPECT_EQ(key_text(parse_key_text(text)), text);
}

TEST(KeyText, PlainOperationsRoundTrip) {
  for (const Operation operation : {Operation::softmax, Operation::copy, Operation::read})
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
      for (const bool in_place : {false, true})
        for (const Alignment alignment : {Alignment::vector, Alignment::shifted, Alignment::element})
          for (const std::int64_t rows : {1, 2, 3, 8192, 8193})
            expect_round_trip({.operation = operation,
                               .dtype = dtype,
                               .in_place = in_place,
                               .alignment = alignment,
                               .rows = rows,
                               .columns = 50257});
}

TEST(KeyText, DenseRowsRoundTrip) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const std::int64_t rows : {2, 3, 8193})
      expect_round_trip({.dtype = dtype, .alignment = Alignment::dense, .rows = rows, .columns = 10});
  EXPECT_THROW((void)parse_key_text("softmax bf16 cols=4096 align=dense rows<=8192 l2=cold"),
               InvalidArgument);
}

TEST(KeyText, CrossEntropyRoundTrips) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const DType loss : {DType::f32, dtype})
      for (const DType target : {DType::i32, DType::i64})
        for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum})
          for (const bool gradient : {false, true})
            for (const bool in_place : {false, true})
              expect_round_trip({.operation = Operation::cross_entropy,
                                 .dtype = dtype,
                                 .target_dtype = target,
                                 .loss_dtype = loss,
                                 .reduction = reduction,
                                 .gradient = gradient,
                                 .in_place = gradient && in_place,
                                 .rows = 64,
                                 .columns = 1000});
}

TEST(KeyText, TheLastBucketHoldsAsManyRowsAsAKernelTakes) {
  const Problem problem{.rows = (std::int64_t{1} << 31) - 1, .columns = 1};
  EXPECT_EQ(parse_key_text(key_text(problem)), problem);
}

TEST(KeyText, WhatKeyTextDoesNotWriteIsRefused) {
  const std::string good = "softmax bf16 cols=4096 align=vector rows<=8192 l2=cold";
  EXPECT_EQ(parse_key_text(good).columns, 4096);
  for (const std::string& text :
       std::vector<std::string>{std::string(), "softmax", good + " ", " " + good, good + " later=1",
                                "softmin bf16 cols=4096 align=vector rows<=8192 l2=cold",
                                "softmax f64 cols=4096 align=vector rows<=8192 l2=cold",
                                "softmax bf16 cols=0 align=vector rows<=8192 l2=cold",
                                "softmax bf16 cols=-4 align=vector rows<=8192 l2=cold",
                                "softmax bf16 cols=4096 align=odd rows<=8192 l2=cold",
                                "softmax bf16 cols=4096 align=vector rows<=8191 l2=cold",
                                "softmax bf16 cols=4096 align=vector rows<=99999999999999999999 l2=cold",
                                "softmax bf16 cols=4096 align=vector rows<=8192 l2=warm",
                                "softmax bf16 cols=4096  align=vector rows<=8192 l2=cold",
                                "softmax cols=4096 bf16 align=vector rows<=8192 l2=cold",
                                "cross_entropy bf16 cols=4096 align=vector rows<=8192 l2=cold"})
    EXPECT_THROW(static_cast<void>(parse_key_text(text)), InvalidArgument) << text;
}

}  // namespace
}  // namespace ce::generator
