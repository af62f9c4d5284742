#include "cli/report/line_plot.hpp"

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "tests/cli/xml.hpp"

namespace ce::cli {
namespace {

using test::read_xml;
using test::XmlContents;

LinePlot example_plot() {
  return {.title = "A <GPU> & more",
          .subtitle = "median of 30 samples",
          .x_label = "columns",
          .y_label = "GB/s",
          .panels = {{.title = "softmax",
                      .lines = {{"f32", {{128, 1000}, {1024, 2000}, {8192, 3000}}},
                                {"bf16", {{128, 900}, {1024, 1900}, {8192, 4100}}}},
                      .bound = {"ceiling", {{128, 4200}, {1024, 4200}, {8192, 4200}}}},
                     {.title = "log_softmax", .lines = {{"bf16", {{128, 500}, {8192, 600}}}}}}};
}

TEST(Xml, TellsWhatIsNotWellFormed) {
  EXPECT_EQ(read_xml("<a><b c=\"1\"/>x &lt;</a>\n").text, "x <");
  for (const char* text : {"", "x", "<a>", "<a></b>", "<a><b></a></b>", "<a b=1/>", "<a b=\"1\" b=\"2\"/>",
                           "<a>1 < 2</a>", "<a>&</a>", "<a/><b/>", "<a b=\"<\"/>"})
    EXPECT_THROW(static_cast<void>(read_xml(text)), std::runtime_error) << text;
}

TEST(LinePlot, IsWellFormedAndHoldsEveryPoint) {
  const std::string svg = svg_of(example_plot());
  const XmlContents contents = read_xml(svg);
  EXPECT_EQ(contents.elements.at("svg"), 1);
  EXPECT_EQ(contents.elements.at("g"), 2);
  EXPECT_EQ(contents.elements.at("circle"), 8);
  for (const char* words : {"A <GPU> & more", "median of 30 samples", "columns", "GB/s", "softmax",
                            "log_softmax", "ceiling", "bf16, 8192: 4100 GB/s"})
    EXPECT_NE(contents.text.find(words), std::string::npos) << words;
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
}

/// Positions of the circles of a document, in its order.
std::vector<std::pair<double, double>> circles(const std::string& svg) {
  std::vector<std::pair<double, double>> found;
  const std::regex circle("<circle cx=\"([0-9.]+)\" cy=\"([0-9.]+)\"");
  for (std::sregex_iterator at(svg.begin(), svg.end(), circle), end; at != end; ++at)
    found.emplace_back(std::stod((*at)[1]), std::stod((*at)[2]));
  return found;
}

TEST(LinePlot, ColumnsAreLogarithmicAndValuesLinear) {
  const auto points = circles(svg_of(example_plot()));
  ASSERT_EQ(points.size(), 8U);
  // 128, 1024, 8192: equal factors are equal distances; 1000, 2000, 3000: so are equal differences.
  EXPECT_NEAR(points[1].first - points[0].first, points[2].first - points[1].first, 0.11);
  EXPECT_GT(points[1].first, points[0].first);
  EXPECT_NEAR(points[1].second - points[0].second, points[2].second - points[1].second, 0.11);
  EXPECT_LT(points[1].second, points[0].second);  // upwards
}

TEST(LinePlot, OneColumnOrNothingAtAllCanBeDrawn) {
  LinePlot plot = example_plot();
  plot.panels.resize(1);
  plot.panels[0].lines = {{"f32", {{4096, 3000}}}};
  EXPECT_EQ(read_xml(svg_of(plot)).elements.at("circle"), 1);
  for (const auto& [x, y] : circles(svg_of(plot))) EXPECT_TRUE(x > 0 && y > 0);
  plot.panels.clear();
  EXPECT_EQ(read_xml(svg_of(plot)).elements.at("svg"), 1);
  EXPECT_EQ(svg_of(plot).find("nan"), std::string::npos);
}

TEST(LinePlot, ACeilingAtOneWidthIsALevel) {
  LinePlot plot = example_plot();
  plot.panels.resize(1);
  plot.panels[0].lines = {{"f32", {{4096, 3000}}}};
  plot.panels[0].bound.points = {{4096, 4200}};
  EXPECT_TRUE(std::regex_search(svg_of(plot), std::regex("d=\"M[0-9. ]+H[0-9.]+\" class=\"bound\"")));
}

TEST(LinePlot, LinesBeyondTheColoursAreDashed) {
  LinePlot plot = example_plot();
  plot.panels[0].lines.clear();
  for (int i = 0; i < 8; ++i) plot.panels[0].lines.push_back({std::to_string(i), {{1, 1.}, {2, 2.}}});
  const std::string svg = svg_of(plot);
  EXPECT_NE(svg.find("style=\"stroke: var(--c0)\""), std::string::npos);
  EXPECT_NE(svg.find("style=\"stroke: var(--c0); stroke-dasharray: 6 3\""), std::string::npos);
}

}  // namespace
}  // namespace ce::cli
