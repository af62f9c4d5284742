#include "generator/source.hpp"

#include <gtest/gtest.h>

#include "ce/base/error.hpp"
#include "generator/templates.hpp"
#include "generator/variant.hpp"

namespace ce::generator {
namespace {

const Problem softmax{.dtype = DType::bf16, .rows = 8192, .columns = 4096};
const Config block{.variant = "block", .warps = 8, .vec = 8, .load = 2, .store = 2};

TEST(Source, SameInputSameText) {
  const Source first = generate(softmax, block).sources.front();
  Problem other_rows = softmax;
  other_rows.rows = 17;
  const Source second = generate(other_rows, block).sources.front();
  EXPECT_EQ(first.text, second.text);
  EXPECT_EQ(first.flat(), second.flat());
}

TEST(Source, BeginsWithProblemAndConfigThenConstantsThenTheTemplate) {
  const std::string text = generate(softmax, block).sources.front().text;
  const std::size_t problem = text.find("softmax bf16 cols=4096 align=vector");
  const std::size_t config = text.find("block/warps=8,vec=8,load=cs,store=cs");
  const std::size_t constants = text.find("constexpr int warps = 8;");
  const std::size_t kernel = text.find("CE_KERNEL(ce_row");
  ASSERT_NE(problem, std::string::npos);
  ASSERT_NE(kernel, std::string::npos);
  EXPECT_LT(problem, config);
  EXPECT_LT(config, constants);
  EXPECT_LT(constants, kernel);
}

TEST(Source, FlatTextIncludesNothing) {
  for (const Config& config : space(softmax, {.capability = 90}))
    EXPECT_EQ(generate(softmax, config).sources.front().flat().find("#include"), std::string::npos);
}

TEST(Source, IncludesNothingFromTheToolkit) {
  const Program program = generate(softmax, block);
  for (const auto& [name, text] : program.sources.front().headers)
    EXPECT_EQ(text.find("#include <"), std::string::npos) << name;
}

TEST(Program, SumsOfCrossEntropyAreTheSameSourceForEveryConfigAndWidth) {
  Problem mean{.operation = Operation::cross_entropy,
               .dtype = DType::bf16,
               .reduction = Reduction::mean,
               .gradient = true,
               .rows = 64,
               .columns = 4096};
  const Program narrow = generate(mean, block);
  ASSERT_EQ(narrow.sources.size(), 2u);
  ASSERT_EQ(narrow.steps.size(), 3u);
  EXPECT_EQ(narrow.steps[0].entry, "ce_count");
  EXPECT_EQ(narrow.steps[1].entry, "ce_row");
  EXPECT_EQ(narrow.steps[2].entry, "ce_sum");
  mean.columns = 8192;
  Config other = block;
  other.warps = 16;
  EXPECT_EQ(generate(mean, other).sources[1].text, narrow.sources[1].text);

  mean.gradient = false;  // the sum counts by itself
  EXPECT_EQ(generate(mean, block).steps.size(), 2u);
  mean.reduction = Reduction::none;
  EXPECT_EQ(generate(mean, block).steps.size(), 1u);
}

TEST(Program, AVariantMustServeTheOperation) {
  const Config stream{.variant = "stream", .warps = 8, .vec = 4, .tile = 4096};
  EXPECT_THROW((void)generate(softmax, stream), InvalidArgument);
}

TEST(TemplateDigest, DiffersBetweenVariantsAndOperations) {
  EXPECT_NE(template_digest(Operation::softmax, "block"), template_digest(Operation::softmax, "online"));
  EXPECT_NE(template_digest(Operation::softmax, "block"), template_digest(Operation::cross_entropy, "block"));
  EXPECT_EQ(template_digest(Operation::softmax, "block"), template_digest(Operation::softmax, "block"));
}

TEST(Templates, AnUnknownFileIsNamed) {
  try {
    (void)template_text("nowhere.cuh");
    FAIL();
  } catch (const NotFound& error) {
    EXPECT_EQ(std::string(error.what()), "there is no template nowhere.cuh");
  }
}

TEST(Templates, AxisLinesAreRead) {
  const auto lines = axis_lines("// axis warps = 1 2\n// other\n// axis load = ca cs\n");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].axis, "warps");
  EXPECT_EQ(lines[1].values, (std::vector<std::string>{"ca", "cs"}));
  EXPECT_THROW((void)axis_lines("// axis warps 1 2\n"), InvalidArgument);
  EXPECT_THROW((void)axis_lines("// axis warps =\n"), InvalidArgument);
}

}  // namespace
}  // namespace ce::generator
