#include "cli/options.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ce/base/error.hpp"

namespace ce::cli {
namespace {

using generator::Alignment;
using generator::Operation;
using generator::Problem;

ProblemOptions softmax() {
  return {.operations = {"softmax"}, .dtypes = {"bf16"}, .rows = {"8192"}, .columns = {"4096"}};
}

ProblemOptions cross_entropy() {
  return {.operations = {"cross_entropy"}, .dtypes = {"f32"}, .rows = {"64"}, .columns = {"1000"}};
}

Problem only(const ProblemOptions& options) {
  const std::vector<Problem> problems = problems_of(options);
  EXPECT_EQ(problems.size(), 1U);
  return problems.at(0);
}

TEST(ProblemOptions, SoftmaxHasItsDefaults) {
  EXPECT_EQ(only(softmax()), (Problem{.operation = Operation::softmax,
                                      .dtype = DType::bf16,
                                      .alignment = Alignment::vector,
                                      .rows = 8192,
                                      .columns = 4096}));
}

TEST(ProblemOptions, CrossEntropyHasItsDefaults) {
  EXPECT_EQ(only(cross_entropy()), (Problem{.operation = Operation::cross_entropy,
                                            .dtype = DType::f32,
                                            .target_dtype = DType::i64,
                                            .loss_dtype = DType::f32,
                                            .reduction = Reduction::mean,
                                            .gradient = true,
                                            .in_place = true,
                                            .alignment = Alignment::vector,
                                            .rows = 64,
                                            .columns = 1000}));
}

TEST(ProblemOptions, EveryOptionCounts) {
  ProblemOptions options = cross_entropy();
  options.dtypes = {"f16"};
  options.reduction = "none";
  options.target = "i32";
  options.loss_dtype = "f16";
  options.alignment = "element";
  options.in_place = false;
  EXPECT_EQ(only(options), (Problem{.operation = Operation::cross_entropy,
                                    .dtype = DType::f16,
                                    .target_dtype = DType::i32,
                                    .loss_dtype = DType::f16,
                                    .reduction = Reduction::none,
                                    .gradient = true,
                                    .in_place = false,
                                    .alignment = Alignment::element,
                                    .rows = 64,
                                    .columns = 1000}));
}

TEST(ProblemOptions, TheLossAloneIsNeverInPlace) {
  ProblemOptions options = cross_entropy();
  options.loss_only = true;
  EXPECT_FALSE(only(options).gradient);
  EXPECT_FALSE(only(options).in_place);
}

TEST(ProblemOptions, DenseRowsDecideTheAlignment) {
  ProblemOptions options = softmax();
  options.columns = {"4095"};
  EXPECT_EQ(only(options).alignment, Alignment::shifted);
  options.columns = {"4104"};
  EXPECT_EQ(only(options).alignment, Alignment::vector);
  options.columns = {"4095"};
  options.rows = {"1"};
  EXPECT_EQ(only(options).alignment, Alignment::vector);
}

TEST(ProblemOptions, EveryCombinationIsMeant) {
  const std::vector<Problem> problems = problems_of({.operations = {"softmax,cross_entropy"},
                                                     .dtypes = {"f32", "bf16"},
                                                     .rows = {"1,2,3"},
                                                     .columns = {"10,20"}});
  ASSERT_EQ(problems.size(), 24U);
  EXPECT_EQ(problems[0].columns, 10);
  EXPECT_EQ(problems[1].columns, 20);
  EXPECT_EQ(problems[2].rows, 2);
  EXPECT_EQ(problems[6].dtype, DType::bf16);
  EXPECT_EQ(problems[12].operation, Operation::cross_entropy);
}

/// Expects options to be refused with the name and the value of the one that is wrong.
void expect_refused(const ProblemOptions& options, const std::string& argument, const std::string& value) {
  try {
    static_cast<void>(problems_of(options));
    ADD_FAILURE() << argument << " " << value << " was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), argument);
    EXPECT_NE(error.value().find(value), std::string::npos) << error.what();
  }
}

TEST(ProblemOptions, WhatIsWrongIsNamed) {
  const auto refused = [](std::vector<std::string> ProblemOptions::*field, const std::string& argument,
                          const std::string& value) {
    ProblemOptions options = softmax();
    options.*field = {value};
    expect_refused(options, argument, value);
  };
  refused(&ProblemOptions::operations, "--op", "softmin");
  refused(&ProblemOptions::dtypes, "--dtype", "f64");
  refused(&ProblemOptions::rows, "--rows", "0");
  refused(&ProblemOptions::rows, "--rows", "many");
  refused(&ProblemOptions::columns, "--cols", "-5");
  refused(&ProblemOptions::columns, "--cols", "2147483648");
  ProblemOptions options = softmax();
  options.dtypes = {"i32"};
  expect_refused(options, "dtype", "i32");

  options = cross_entropy();
  options.reduction = "median";
  expect_refused(options, "--reduction", "median");
  options = cross_entropy();
  options.target = "u8";
  expect_refused(options, "--target", "u8");
  options = cross_entropy();
  options.loss_dtype = "bf16";
  expect_refused(options, "loss dtype", "bf16");
  options = cross_entropy();
  options.alignment = "odd";
  expect_refused(options, "--align", "odd");
}

TEST(ProblemOptions, OptionsThatWouldBeIgnoredAreMistakes) {
  ProblemOptions options = softmax();
  options.reduction = "mean";
  expect_refused(options, "--reduction", "mean");
  options = softmax();
  options.loss_only = true;
  expect_refused(options, "--loss-only", "given");
  options = cross_entropy();
  options.loss_only = true;
  options.in_place = true;
  expect_refused(options, "--in-place", "given");
}

}  // namespace
}  // namespace ce::cli
