#include "cli/problem_options.hpp"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "ce/error.hpp"
#include "tests/seed.hpp"

namespace ce::cli {
namespace {

using generator::Alignment;
using generator::Operation;
using generator::Problem;
using generator::Upstream;

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

TEST(ProblemOptions, EveryOptionOfTheLossCounts) {
  ProblemOptions options = cross_entropy();
  options.weights = "f32";
  options.upstream = "rows";
  options.on.smoothing = options.on.z_loss = options.on.softcap = options.on.scale = true;
  options.on.z_loss_out = options.on.lse_out = options.on.argmax_out = options.on.hit_out = true;
  options.batched = true;
  const Problem problem = only(options);
  EXPECT_EQ(problem, (Problem{.operation = Operation::cross_entropy,
                              .reduction = Reduction::mean,
                              .upstream = Upstream::rows,
                              .gradient = true,
                              .weights = true,
                              .has = {.smoothing = true,
                                      .z_loss = true,
                                      .softcap = true,
                                      .scale = true,
                                      .z_loss_out = true,
                                      .lse_out = true,
                                      .argmax_out = true,
                                      .hit_out = true},
                              .in_place = true,
                              .batched = true,
                              .rows = 64,
                              .columns = 1000}));
  options = cross_entropy();
  options.probabilities = true;
  EXPECT_TRUE(only(options).probabilities);
  EXPECT_EQ(only(options).target_dtype, DType::i64);
}

TEST(ProblemOptions, TheBackwardOperationHasAGradientAndNoOutputsOfRows) {
  ProblemOptions options = cross_entropy();
  options.operations = {"cross_entropy,cross_entropy_backward"};
  options.on.lse_out = options.on.argmax_out = options.on.z_loss = options.on.z_loss_out = options.loss_only =
      true;
  const std::vector<Problem> problems = problems_of(options);
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_FALSE(problems[0].gradient);
  EXPECT_TRUE(problems[0].has.lse_out && problems[0].has.argmax_out && problems[0].has.z_loss_out);
  EXPECT_EQ(problems[1], (Problem{.operation = Operation::cross_entropy_backward,
                                  .reduction = Reduction::mean,
                                  .gradient = true,
                                  .has = {.z_loss = true},
                                  .in_place = true,
                                  .rows = 64,
                                  .columns = 1000}));
}

TEST(ProblemOptions, OperationsOfRanksHaveWhatConcernsThem) {
  ProblemOptions options = cross_entropy();
  options.operations = {"cross_entropy_shard,cross_entropy_merge,cross_entropy_shard_backward"};
  options.weights = "f32";
  options.on.z_loss = true;
  const std::vector<Problem> problems = problems_of(options);
  ASSERT_EQ(problems.size(), 3U);
  const Problem &shard = problems[0], &merge = problems[1], &backward = problems[2];
  EXPECT_EQ(std::tuple(shard.reduction, shard.gradient, shard.has.z_loss, shard.weights),
            std::tuple(Reduction::none, false, false, false));
  EXPECT_EQ(std::tuple(merge.reduction, merge.gradient, merge.has.z_loss, merge.weights),
            std::tuple(Reduction::mean, false, true, true));
  EXPECT_EQ(std::tuple(backward.reduction, backward.gradient, backward.has.z_loss, backward.weights),
            std::tuple(Reduction::mean, true, true, true));
}

TEST(ProblemOptions, OptionsThatAskTheSameAreOneProblem) {
  ProblemOptions options = cross_entropy();
  options.operations = {"cross_entropy_backward"};
  options.reduction = "sum";
  options.upstream = "rows";
  EXPECT_EQ(only(options).reduction, Reduction::none);
  EXPECT_EQ(only(options).upstream, Upstream::rows);
  options.rows = {"1"};
  EXPECT_EQ(only(options).upstream, Upstream::scalar);
  options.operations = {"cross_entropy"};
  EXPECT_EQ(only(options).reduction, Reduction::sum);
  EXPECT_EQ(only(options).upstream, Upstream::scalar);
}

TEST(ProblemOptions, ALayoutThatMakesNoDifferenceIsNotInTheProblem) {
  ProblemOptions options = softmax(), dense = softmax();
  options.batched = options.strided = true;
  options.rows = dense.rows = {"2"};
  EXPECT_FALSE(only(options).batched);
  EXPECT_TRUE(only(options).strided);
  options.columns = dense.columns = {"1"};
  EXPECT_EQ(only(options), only(dense));
  options.rows = {"4"};
  EXPECT_TRUE(only(options).batched);
}

TEST(ProblemOptions, AnAmountThatChangesNothingIsNotInTheProblem) {
  ProblemOptions options = cross_entropy();
  const Problem plain = only(options);
  options.on.smoothing = options.on.z_loss = options.on.softcap = options.on.scale = true;
  EXPECT_EQ(one_problem_of(options, {.of_options = {{0, 0, -0.f, 1}}}), plain);
  EXPECT_EQ(one_problem_of(options, {.of_options = {{1, 1, 1, 2}}}), only(options));
  Problem capped = plain;
  capped.has.softcap = true;
  EXPECT_EQ(one_problem_of(options, {.of_options = {{0, 0, 1, 1}}}), capped);
  options = softmax();
  options.on.softcap = true;
  EXPECT_THROW(static_cast<void>(one_problem_of(options, {.of_options = {{0, 0, 0, 1}}})), InvalidArgument);
}

TEST(ProblemOptions, OptionsReachOnlyTheOperationsThatHaveThem) {
  ProblemOptions options = softmax();
  options.operations = {"softmax,softmax_backward,cross_entropy"};
  options.on.smoothing = true;
  options.strided = true;
  const std::vector<Problem> problems = problems_of(options);
  ASSERT_EQ(problems.size(), 3U);
  EXPECT_EQ(problems[1], (Problem{.operation = Operation::softmax_backward,
                                  .dtype = DType::bf16,
                                  .strided = true,
                                  .rows = 8192,
                                  .columns = 4096}));
  EXPECT_TRUE(problems[2].has.smoothing && problems[2].strided && problems[2].in_place);
}

TEST(ProblemOptions, StridedRowsHaveNoAlignment) {
  ProblemOptions options = softmax();
  options.columns = {"4095"};
  options.strided = true;
  EXPECT_EQ(only(options).alignment, Alignment::vector);
}

/// Of one column, rows are not strided: there the alignment counts.
TEST(ProblemOptions, AnAlignmentBesideStridedRowsIsThatOfTheOthers) {
  ProblemOptions options = softmax();
  options.columns = {"1", "4095"};
  options.strided = true;
  options.alignment = "element";
  const std::vector<Problem> problems = problems_of(options);
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_FALSE(problems[0].strided);
  EXPECT_EQ(problems[0].alignment, Alignment::element);
  EXPECT_TRUE(problems[1].strided);
  EXPECT_EQ(problems[1].alignment, Alignment::vector);
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
  options.columns = {"10"};
  EXPECT_EQ(only(options).alignment, Alignment::vector);
  options.rows = {"64"};
  EXPECT_EQ(only(options).alignment, Alignment::dense);
  options.batched = true;
  EXPECT_EQ(only(options).alignment, Alignment::shifted);
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
  expect_refused(options, "--dtype", "i32");

  options = cross_entropy();
  options.reduction = "median";
  expect_refused(options, "--reduction", "median");
  options = cross_entropy();
  options.target = "u8";
  expect_refused(options, "--target", "u8");
  options = cross_entropy();
  options.loss_dtype = "bf16";
  expect_refused(options, "--loss-dtype", "\"bf16\"");
  options = cross_entropy();
  options.weights = "u8";
  expect_refused(options, "--weights", "u8");
  options = cross_entropy();
  options.weights = "f64";
  expect_refused(options, "--weights", "f64");
  options = cross_entropy();
  options.weights = "f16";
  expect_refused(options, "--weights", "\"f16\"");
  options = softmax();
  options.rows = {"2147483647"};
  options.columns = {"1073741824"};
  expect_refused(options, "--rows", "\"2147483647\"");
  options = cross_entropy();
  options.upstream = "columns";
  expect_refused(options, "--upstream", "columns");
  options = cross_entropy();
  options.alignment = "odd";
  expect_refused(options, "--align", "odd");
}

TEST(ProblemOptions, OptionsThatWouldBeIgnoredAreMistakes) {
  const auto refused = [](ProblemOptions options, auto ProblemOptions::*field, auto value,
                          const std::string& argument) {
    options.*field = value;
    expect_refused(options, argument, "");
  };
  for (const auto& [field, argument] : std::vector<std::pair<bool ProblemOptions::*, std::string>>{
           {&ProblemOptions::loss_only, "--loss-only"}, {&ProblemOptions::probabilities, "--probabilities"}})
    refused(softmax(), field, true, argument);
  const auto refused_on = [](ProblemOptions options, bool generator::CrossEntropyFlags::*field,
                             const std::string& argument) {
    options.on.*field = true;
    expect_refused(options, argument, "");
  };
  for (const auto& [field, argument] :
       std::vector<std::pair<bool generator::CrossEntropyFlags::*, std::string>>{
           {&generator::CrossEntropyFlags::smoothing, "--smoothing"},
           {&generator::CrossEntropyFlags::z_loss, "--z-loss"},
           {&generator::CrossEntropyFlags::softcap, "--softcap"},
           {&generator::CrossEntropyFlags::scale, "--scale"},
           {&generator::CrossEntropyFlags::z_loss_out, "--z-loss-out"},
           {&generator::CrossEntropyFlags::lse_out, "--lse"},
           {&generator::CrossEntropyFlags::argmax_out, "--argmax"},
           {&generator::CrossEntropyFlags::hit_out, "--hit"}})
    refused_on(softmax(), field, argument);
  for (const auto& [field, argument, value] :
       std::vector<std::tuple<std::string ProblemOptions::*, std::string, std::string>>{
           {&ProblemOptions::reduction, "--reduction", "mean"},
           {&ProblemOptions::target, "--target", "i32"},
           {&ProblemOptions::loss_dtype, "--loss-dtype", "f32"},
           {&ProblemOptions::weights, "--weights", "f32"},
           {&ProblemOptions::ignore_index, "--ignore-index", "5"},
           {&ProblemOptions::upstream, "--upstream", "scalar"}})
    refused(softmax(), field, value, argument);

  ProblemOptions backward = cross_entropy();
  backward.operations = {"cross_entropy_backward"};
  refused(backward, &ProblemOptions::loss_only, true, "--loss-only");
  refused_on(backward, &generator::CrossEntropyFlags::lse_out, "--lse");
  refused(backward, &ProblemOptions::loss_dtype, "f32", "--loss-dtype");
  refused_on(cross_entropy(), &generator::CrossEntropyFlags::z_loss_out, "--z-loss-out");

  ProblemOptions probabilities = cross_entropy();
  probabilities.probabilities = true;
  refused(probabilities, &ProblemOptions::target, "i64", "--target");
  refused(probabilities, &ProblemOptions::ignore_index, "5", "--ignore-index");
  refused_on(probabilities, &generator::CrossEntropyFlags::hit_out, "--hit");

  ProblemOptions loss_only = cross_entropy();
  loss_only.loss_only = true;
  ProblemOptions with_given_lse = loss_only;
  with_given_lse.on.given_lse = with_given_lse.on.lse_low_out = true;
  try {
    static_cast<void>(problems_of(with_given_lse));
    ADD_FAILURE() << "it is accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(std::string(error.what()),
              "--lse-low is given; expected only with --op cross_entropy without --given-lse");
  }
  refused(loss_only, &ProblemOptions::in_place, true, "--in-place");
  refused(loss_only, &ProblemOptions::upstream, "scalar", "--upstream");

  ProblemOptions strided = softmax();
  strided.strided = true;
  refused(strided, &ProblemOptions::alignment, "vector", "--align");
  ProblemOptions copy = softmax();
  copy.operations = {"copy"};
  refused(copy, &ProblemOptions::strided, true, "--strided");
  refused(copy, &ProblemOptions::batched, true, "--batched");
}

/// What a frozen program prints tunes the problem that it missed.
TEST(ProblemOptions, TheCommandOfAProblemSaysIt) {
  const std::uint64_t seed = ce::test::test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto some = [&](int one_in) { return random() % static_cast<std::uint64_t>(one_in) == 0; };
  const auto any_of = [&](const std::vector<std::string>& words) {
    return words.at(random() % words.size());
  };
  int said = 0;
  for (int i = 0; i < 3000; ++i) {
    ProblemOptions options{
        .operations = {any_of({"softmax", "log_softmax", "softmax_backward", "cross_entropy", "cross_entropy",
                               "cross_entropy_backward"})},
        .dtypes = {any_of({"f32", "f16", "bf16"})},
        .rows = {any_of({"1", "3", "8192"})},
        .columns = {any_of({"1", "7", "1000", "50257", "128256"})}};
    if (options.operations.front().starts_with("cross_entropy")) {
      options.reduction = any_of({"", "none", "mean", "sum"});
      options.target = any_of({"", "", "i32"});
      options.loss_dtype = any_of({"", "", "f32", options.dtypes.front()});
      options.weights = any_of({"", "", "f32", options.dtypes.front()});
      options.upstream = any_of({"", "", "", "scalar", "rows"});
      options.loss_only = some(6);
      options.probabilities = some(8);
      for (const auto& option : generator::cross_entropy_options) options.on.*option.field = some(6);
      for (const auto& input : generator::cross_entropy_inputs) options.on.*input.field = some(12);
      for (const auto& output : generator::cross_entropy_outputs) options.on.*output.field = some(12);
    }
    options.batched = some(5);
    options.strided = some(5);
    if (some(2)) options.in_place = some(2);
    options.alignment = any_of({"", "", "vector", "dense", "shifted", "element"});
    std::vector<Problem> wanted;
    try {
      wanted = problems_of(options);
    } catch (const InvalidArgument&) {
      continue;  // that is no problem
    }
    const std::string command = generator::sweep_command(wanted.at(0));
    SCOPED_TRACE(command);
    constexpr std::string_view start = "ce-tune sweep ";
    ASSERT_TRUE(command.starts_with(start));
    CLI::App app;
    ProblemOptions parsed;
    add_problem_options(app, parsed);
    app.parse(command.substr(start.size()));
    ASSERT_EQ(only(parsed), wanted.at(0));
    ++said;
  }
  EXPECT_GT(said, 200) << "most of what was drawn is no problem";
}

}  // namespace
}  // namespace ce::cli
