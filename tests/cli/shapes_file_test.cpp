#include "cli/shapes_file.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ce/error.hpp"
#include "cli/csv.hpp"

namespace ce::cli {
namespace {

using generator::Operation;
using generator::Problem;

using Fields = std::vector<std::string>;

TEST(Csv, ReadsWhatRfc4180Allows) {
  const std::vector<CsvRecord> records = parse_csv(
      "\xEF\xBB\xBF"
      "a, b ,c\r\n\n\"x,y\",\"say \"\"z\"\"\", \"two\nlines\" \n  \n,,\nlast,1,2",
      "f");
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(records[0].fields, (Fields{"a", "b", "c"}));
  EXPECT_EQ(records[1].fields, (Fields{"x,y", "say \"z\"", "two\nlines"}));
  EXPECT_EQ(records[2].fields, (Fields{"", "", ""}));
  EXPECT_EQ(records[3].fields, (Fields{"last", "1", "2"}));
  EXPECT_EQ(records[1].line, 3);
  EXPECT_EQ(records[3].line, 7);
  EXPECT_TRUE(parse_csv("", "f").empty());
}

TEST(Csv, SaysWhereAQuoteIsWrong) {
  for (const auto& [text, line] : {std::pair{"a\n\"b\nc", 2}, {"a\nb\n\"c\"d,e\n", 3}}) try {
      static_cast<void>(parse_csv(text, "f.csv"));
      ADD_FAILURE() << text;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), fmt::format("f.csv line {}", line));
    }
}

class ShapesFile : public testing::Test {
 protected:
  ~ShapesFile() override {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

  std::vector<Problem> problems(const std::string& text, const ProblemOptions& given = {}) const {
    std::ofstream(path_) << text;
    return problems_of(path_, given);
  }

  /// What is wrong with it: "line 2, rows", without the path.
  std::string place(const std::string& text, const ProblemOptions& given = {}) const {
    try {
      static_cast<void>(problems(text, given));
    } catch (const InvalidArgument& error) {
      EXPECT_NE(error.expected(), "");
      const std::string name = path_.string() + " ";
      return error.argument().starts_with(name) ? error.argument().substr(name.size()) : error.argument();
    }
    return "nothing";
  }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / fmt::format("ce-shapes-{}.csv", ::getpid());
};

TEST_F(ShapesFile, HasOptionsAsColumns) {
  const std::vector<Problem> found = problems(
      "rows,cols,op,dtype,smoothing,weights,in-place,reduction,upstream\n"
      "8,1000,softmax,f32,,,,,\n"
      "16,50257,cross_entropy,bf16,true,bf16,false,sum,rows\n"
      "16,50257,cross_entropy,f32,false,true,true,,\n");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0], (Problem{.operation = Operation::softmax, .rows = 8, .columns = 1000}));
  EXPECT_TRUE(found[1].has.smoothing && found[1].weights && !found[1].in_place);
  EXPECT_EQ(found[1].weight_dtype, DType::bf16);
  EXPECT_EQ(found[1].reduction, Reduction::sum);
  EXPECT_EQ(found[1].upstream, generator::Upstream::rows);
  EXPECT_TRUE(!found[2].has.smoothing && found[2].weights && found[2].in_place);
  EXPECT_EQ(found[2].weight_dtype, DType::f32);
  EXPECT_EQ(found[2].reduction, Reduction::mean);
}

TEST_F(ShapesFile, HasListsAndNothingTwice) {
  const std::vector<Problem> found =
      problems("op,dtype,rows,cols\nsoftmax,\"f32,bf16\",\"1,8\",100\nsoftmax,f32,8,100\n");
  EXPECT_EQ(found.size(), 4U);
}

TEST_F(ShapesFile, GivesWayToTheListsOfTheCommand) {
  const std::vector<Problem> found =
      problems("op,cols\nsoftmax,100\nlog_softmax,200\n", {.dtypes = {"f16"}, .rows = {"1,2"}});
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[3].columns, 200);
  EXPECT_EQ(found[3].rows, 2);
  EXPECT_EQ(found[3].dtype, DType::f16);
  EXPECT_EQ(problems("op,dtype,rows,cols\nsoftmax,f32,9,100\n", {.rows = {"1"}}).front().rows, 1);
}

TEST_F(ShapesFile, SaysWhatIsWrongAndWhere) {
  const std::string header = "op,dtype,rows,cols,smoothing\n", right = "softmax,f32,1,1,\n";
  EXPECT_EQ(place(header + right), "nothing");
  EXPECT_EQ(place(header), "--from");
  EXPECT_EQ(place(header + right, {.on = {.smoothing = true}}), "--from");
  EXPECT_EQ(place(header + right + "sofmax,f32,1,1,\n"), "line 3, op");
  EXPECT_EQ(place(header + right + "softmax,f33,1,1,\n"), "line 3, dtype");
  EXPECT_EQ(place(header + right + "softmax,f32,0,1,\n"), "line 3, rows");
  EXPECT_EQ(place(header + right + "softmax,f32,,1,\n"), "line 3, rows");
  EXPECT_EQ(place(header + right + "softmax,f32,1,x,\n"), "line 3, cols");
  EXPECT_EQ(place(header + right + "softmax,f32,1,1,true\n"), "line 3, smoothing");
  EXPECT_EQ(place(header + right + "cross_entropy,f32,1,1,maybe\n"), "line 3, smoothing");
  EXPECT_EQ(place(header + right + "softmax,f32,2147483647,1073741824,\n"), "line 3, rows");
  EXPECT_EQ(place("op,dtype,rows,cols,loss-dtype\ncross_entropy,f32,1,1,bf16\n"), "line 2, loss-dtype");
  EXPECT_EQ(place(header + right + "softmax,f32,1,1\n"), "line 3");
  EXPECT_EQ(place("op,dtype,rows,cols,in-place,no-in-place\nsoftmax,f32,1,1,true,true\n"), "line 2, fields");
  EXPECT_EQ(place("op,dtype,rows\nsoftmax,f32,1\n"), "line 1");
  EXPECT_EQ(place("op,dtype,rows,cols,smooth\nsoftmax,f32,1,1,\n"), "line 1");
  EXPECT_EQ(place("op,dtype,rows,cols,op\nsoftmax,f32,1,1,softmax\n"), "line 1");
  EXPECT_THROW(static_cast<void>(problems_of("/nonexistent/shapes.csv", {})), NotFound);
  EXPECT_THROW(static_cast<void>(problems_of(std::filesystem::temp_directory_path(), {})), InvalidArgument);
}

}  // namespace
}  // namespace ce::cli
