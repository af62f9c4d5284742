#include "cli/presets.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "ce/error.hpp"

namespace ce::cli {
namespace {

using generator::Operation;
using generator::Problem;

std::vector<Problem> of(const std::string& preset, const ProblemOptions& given = {}) {
  return problems_of_presets({preset}, given);
}

TEST(Presets, AreSortedAndSayWhereTheyAreFrom) {
  std::string before;
  std::set<std::pair<std::string_view, std::int64_t>> seen;
  for (const Vocabulary& vocabulary : vocabularies()) {
    EXPECT_LE(before, vocabulary.preset);
    before = vocabulary.preset;
    EXPECT_TRUE(seen.emplace(vocabulary.preset, vocabulary.columns).second) << vocabulary.preset;
    EXPECT_GE(vocabulary.columns, 32000);
    EXPECT_TRUE(is_floating(vocabulary.dtype));
    EXPECT_TRUE(vocabulary.source.starts_with("https://")) << vocabulary.source;
    EXPECT_NE(vocabulary.models, "");
  }
}

TEST(Presets, AreProblemsOfTrainingAndServing) {
  std::set<std::string_view> names;
  for (const Vocabulary& vocabulary : vocabularies()) names.insert(vocabulary.preset);
  for (const std::string_view name : names) {
    std::vector<Problem> problems = of(std::string(name));
    for (const Problem& problem : problems) {
      const bool training = problem.operation == Operation::cross_entropy;
      EXPECT_EQ(problem.rows >= 4096, training) << generator::title(problem);
      EXPECT_TRUE(training || problem.dtype == DType::f32) << generator::title(problem);
      if (!training) continue;
      EXPECT_TRUE(problem.gradient && problem.in_place) << generator::title(problem);
      EXPECT_EQ(problem.reduction, Reduction::mean) << generator::title(problem);
      EXPECT_EQ(problem.has.softcap, name == "gemma2") << generator::title(problem);
    }
    for (auto problem = problems.begin(); problem != problems.end(); ++problem)
      EXPECT_EQ(std::find(problem + 1, problems.end(), *problem), problems.end())
          << generator::title(*problem);
  }
}

TEST(Presets, HaveTheColumnsOfTheirModels) {
  const auto columns = [](const std::string& preset) {
    std::set<std::int64_t> found;
    for (const Problem& problem : of(preset)) found.insert(problem.columns);
    return found;
  };
  EXPECT_EQ(columns("llama3"), (std::set<std::int64_t>{128256}));
  EXPECT_EQ(columns("gpt2"), (std::set<std::int64_t>{50257, 50304}));
  EXPECT_EQ(of("llama3").size(), 2U * 3 + 2 * 4);
}

TEST(Presets, GiveWayToOptions) {
  const ProblemOptions given{.operations = {"softmax", "cross_entropy"},
                             .dtypes = {"f16"},
                             .rows = {"3"},
                             .on = {.smoothing = true}};
  const std::vector<Problem> problems = of("llama3,qwen3", given);
  ASSERT_EQ(problems.size(), 4U);
  for (const Problem& problem : problems) {
    EXPECT_EQ(problem.dtype, DType::f16);
    EXPECT_EQ(problem.rows, 3);
    EXPECT_EQ(problem.has.smoothing, problem.operation == Operation::cross_entropy);
  }
  EXPECT_EQ(problems[2].columns, 151936);
  // An operation that neither training nor serving is about has the rows of training.
  EXPECT_EQ(of("phi4", {.operations = {"softmax_backward"}}).front().rows, 4096);
}

TEST(Presets, OfTheSameShapeAreOneProblem) { EXPECT_EQ(of("phi4,olmo2").size(), of("phi4").size()); }

TEST(Presets, SayWhatIsWrong) {
  try {
    static_cast<void>(of("llama3,llama9"));
    ADD_FAILURE() << "llama9 is none";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "--preset");
    EXPECT_EQ(error.value(), "\"llama9\"");
    EXPECT_NE(error.expected().find("gpt2, kimi-k2, llama2, llama3"), std::string::npos) << error.expected();
  }
  EXPECT_THROW(static_cast<void>(of("llama3", {.columns = {"5"}})), InvalidArgument);
  EXPECT_THROW(static_cast<void>(of("llama3", {.operations = {"softmax"}, .on = {.smoothing = true}})),
               InvalidArgument);
}

}  // namespace
}  // namespace ce::cli
