#include "cli/commands/suite.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "ce/error.hpp"

namespace ce::cli {
namespace {

using generator::Operation;
using generator::Problem;

TEST(Suite, HasANameThatIsReadBack) {
  for (const Suite suite : {Suite::widths, Suite::vocab, Suite::few_rows})
    EXPECT_EQ(parse_suite(name(suite)), suite);
  EXPECT_THROW(static_cast<void>(parse_suite("lengths")), InvalidArgument);
}

TEST(Suite, WidthsAreHalfAGibToOneGib) {
  const std::vector<Problem> problems = problems_of(Suite::widths, {});
  EXPECT_EQ(problems.size(), 7U * 3 * 19);
  std::set<Operation> operations;
  int losses = 0;
  for (const Problem& problem : problems) {
    operations.insert(problem.operation);
    losses += problem.operation == Operation::cross_entropy && !problem.gradient;
    const std::int64_t bytes = problem.rows * problem.columns * size_of(problem.dtype);
    EXPECT_GT(bytes, std::int64_t{1} << 29) << generator::title(problem);
    EXPECT_LE(bytes, std::int64_t{1} << 30) << generator::title(problem);
    EXPECT_EQ(problem.rows % 8, 0) << generator::title(problem);
    EXPECT_EQ(problem.in_place, generator::is_cross_entropy(problem.operation) && problem.gradient);
  }
  EXPECT_EQ(operations.size(), 6U);
  EXPECT_EQ(losses, 3 * 19);
}

TEST(Suite, VocabulariesHave8192Rows) {
  const std::vector<Problem> problems = problems_of(Suite::vocab, {});
  EXPECT_EQ(problems.size(), 2U * 2 * 10);
  for (const Problem& problem : problems) {
    EXPECT_EQ(problem.rows, 8192);
    EXPECT_NE(problem.dtype, DType::f16);
    EXPECT_TRUE(problem.operation == Operation::softmax || problem.gradient);
  }
}

TEST(Suite, FewRowsAreSortedByRowsThenColumns) {
  const std::vector<Problem> problems = problems_of(Suite::few_rows, {.operations = {"softmax"}});
  ASSERT_EQ(problems.size(), 3U * 4 * 3);
  EXPECT_EQ(problems[0].rows, 1);
  EXPECT_EQ(problems[1].columns, 128256);
  EXPECT_EQ(problems[3].rows, 8);
  EXPECT_EQ(problems[11].rows, 64);
  EXPECT_EQ(problems[12].dtype, DType::f16);
}

TEST(Suite, OptionsTakeThePlaceOfItsOwn) {
  const std::vector<Problem> problems = problems_of(Suite::widths, {.operations = {"cross_entropy"},
                                                                    .dtypes = {"bf16"},
                                                                    .rows = {"8", "16"},
                                                                    .columns = {"64"},
                                                                    .on = {.smoothing = true}});
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_TRUE(problems[0].has.smoothing && problems[0].gradient);
  EXPECT_EQ(problems[1].rows, 16);
  // Neither the loss nor the loss alone is timed twice.
  EXPECT_EQ(problems_of(Suite::widths, {.dtypes = {"f32"}, .columns = {"64"}, .loss_only = true}).size(), 6U);
  EXPECT_THROW(
      static_cast<void>(problems_of(Suite::widths, {.operations = {"softmax"}, .on = {.smoothing = true}})),
      InvalidArgument);
}

}  // namespace
}  // namespace ce::cli
