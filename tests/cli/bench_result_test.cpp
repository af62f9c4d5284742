#include "cli/commands/bench_result.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "ce/error.hpp"

namespace ce::cli {
namespace {

using generator::Operation;
using generator::Problem;

BenchedProblem benched(const Problem& problem, double median_us, double ceiling_us) {
  const std::int64_t bytes = generator::traffic(problem).total();
  return {
      .problem = problem,
      .key = {generator::key_text(problem), "host:test|x"},
      .timing = tuner::Retiming{
          .problem = problem,
          .winner = {.config = "block/warps=4,vec=8,load=ca,store=wb",
                     .bytes = bytes,
                     .samples_us = {static_cast<float>(median_us)},
                     .median_us = median_us},
          .ceiling = {.config = "driver copy", .bytes = bytes, .samples_us = {1}, .median_us = ceiling_us}}};
}

Problem softmax(DType dtype, std::int64_t rows, std::int64_t columns) {
  return {.operation = Operation::softmax, .dtype = dtype, .rows = rows, .columns = columns};
}

BenchResult example_result() {
  BenchResult result{.asked = 4, .suite = "widths", .command = "ce-tune bench", .samples = 30};
  result.run.model.name = "Test GPU";
  result.run.date = "2026-11-21T04:00:00Z";
  result.problems = {benched(softmax(DType::f32, 8192, 4096), 100, 80),
                     benched(softmax(DType::f32, 4096, 8192), 100, 90),
                     benched(softmax(DType::bf16, 8192, 8192), 100, 95)};
  BenchedProblem failed{.problem = softmax(DType::bf16, 8192, 16384)};
  failed.failure = describe(Error(ErrorKind::verification, "none was right"));
  result.problems.push_back(failed);
  return result;
}

TEST(BenchResult, IsATableForEachOperationAndDtype) {
  const std::string text = text_of(example_result());
  EXPECT_NE(text.find("softmax, f32\n  ROWS  COLUMNS"), std::string::npos) << text;
  EXPECT_NE(text.find("softmax, bf16\n  ROWS  COLUMNS"), std::string::npos) << text;
  EXPECT_NE(text.find("80.0%"), std::string::npos) << text;
  EXPECT_NE(text.find("softmax bf16 8192 x 16384: none was right"), std::string::npos) << text;
  EXPECT_NE(text.find("3 of 4 problems"), std::string::npos) << text;
  EXPECT_EQ(text.find("BOUND"), std::string::npos) << text;
}

TEST(BenchResult, FewRowsAreHeldAgainstTheirBound) {
  BenchResult result = example_result();
  result.launch_floor_us = 2.5;
  for (BenchedProblem& problem : result.problems) problem.bound_us = 50;
  const std::string text = text_of(result);
  EXPECT_NE(text.find("OF BOUND"), std::string::npos) << text;
  EXPECT_NE(text.find("200.0%"), std::string::npos) << text;
  EXPECT_NE(text.find("launch floor 2.50 us"), std::string::npos) << text;
  EXPECT_EQ(json_of(result).at("problems")[0].at("bound_us"), 50);
}

TEST(BenchResult, TheDocumentHoldsWhatARepetitionNeeds) {
  const Json json = json_of(example_result());
  for (const char* key :
       {"command", "version", "date", "device", "environment", "suite", "samples", "problems"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_FALSE(json.contains("launch_floor_us"));
  const Json problem = json.at("problems")[0];
  EXPECT_EQ(problem.at("bytes"), 2 * 8192 * 4096 * 4);
  EXPECT_EQ(problem.at("extra_bytes"), 8192 * 4096 * 4);
  EXPECT_DOUBLE_EQ(problem.at("share_of_ceiling"), 0.8);
  EXPECT_EQ(problem.at("samples_us").size(), 1U);
  EXPECT_EQ(problem.at("ceiling").at("config"), "driver copy");
  EXPECT_EQ(json.at("problems")[3].at("error").at("exit_code"), 10);
}

TEST(BenchResult, ThePlotHasAPanelForEachOperationAndALineForEachDtype) {
  BenchResult result = example_result();
  Problem loss{
      .operation = Operation::cross_entropy, .gradient = true, .in_place = true, .rows = 64, .columns = 1000};
  result.problems.push_back(benched(loss, 10, 9));
  loss.alignment = generator::Alignment::shifted;
  loss.columns = 1001;
  result.problems.push_back(benched(loss, 10, 9));
  const LinePlot plot = plot_of(result);
  ASSERT_EQ(plot.panels.size(), 2U);
  EXPECT_EQ(plot.panels[0].title, "softmax");
  EXPECT_EQ(plot.panels[1].title, "cross_entropy loss+grad none in place");
  ASSERT_EQ(plot.panels[0].lines.size(), 2U);
  EXPECT_EQ(plot.panels[0].lines[0].label, "f32");
  EXPECT_EQ(plot.panels[0].lines[0].points.size(), 2U);
  EXPECT_EQ(plot.panels[0].lines[1].points.size(), 1U);
  ASSERT_EQ(plot.panels[0].bound.points.size(), 2U);
  EXPECT_EQ(plot.panels[1].lines[0].points.size(), 2U);
  // 8192 columns were timed in both dtypes: the higher ceiling counts.
  const double f32 = result.problems[1].timing->ceiling.gbs(),
               bf16 = result.problems[2].timing->ceiling.gbs();
  EXPECT_DOUBLE_EQ(plot.panels[0].bound.points[1].second, std::max(f32, bf16));
}

TEST(BenchResult, SeveralRowsOfAWidthAreSeveralLines) {
  BenchResult result = example_result();
  result.problems = {benched(softmax(DType::f32, 1, 4096), 3, 2),
                     benched(softmax(DType::f32, 8, 4096), 4, 2)};
  const LinePlot plot = plot_of(result);
  ASSERT_EQ(plot.panels.at(0).lines.size(), 2U);
  EXPECT_EQ(plot.panels[0].lines[0].label, "f32, 1 row");
  EXPECT_EQ(plot.panels[0].lines[1].label, "f32, 8 rows");
}

}  // namespace
}  // namespace ce::cli
