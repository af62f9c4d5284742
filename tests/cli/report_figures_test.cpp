#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "cli/report/chart.hpp"
#include "cli/report/figures.hpp"
#include "cli/report/width_plot.hpp"
#include "tests/cli/report_example.hpp"
#include "tests/cli/xml.hpp"
#include "tuner/maker.hpp"

namespace ce::cli {
namespace {

using cache::Measurement;
using generator::Problem;
using test::configs_of;
using test::device;
using test::final_of;
using test::softmax_of;

double us_at(const Problem& problem, double gbs) {
  return static_cast<double>(generator::traffic(problem).total()) / gbs * 1e-3;
}

void add_ceiling(cache::Cache& cache) {
  const Problem copy{.operation = generator::Operation::copy, .rows = 65536, .columns = 4096};
  cache.add(final_of(copy, device, configs_of(copy).front(), us_at(copy, 4000)));
}

void add_problem(cache::Cache& cache, std::int64_t rows, std::int64_t columns, double gbs) {
  Problem problem = softmax_of(columns);
  problem.rows = rows;
  cache.add(final_of(problem, device, configs_of(problem).front(), us_at(problem, gbs)));
}

Kinds kinds_of(const ReportData& report) {
  Kinds kinds;
  for (const ReportedProblem& problem : report.devices.at(0).problems) {
    const std::string kind = kind_of(*problem.problem);
    if (kinds.empty() || kinds.back().first != kind) kinds.emplace_back(kind, Problems{});
    kinds.back().second.push_back(&problem);
  }
  return kinds;
}

std::vector<std::string> all_of(const std::string& text, const std::string& pattern) {
  const std::regex form(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), form), end; at != end; ++at)
    found.push_back((*at)[1]);
  return found;
}

/// Places of the points of each line, in the order of the document.
std::vector<std::vector<std::pair<double, double>>> lines_in(const std::string& html) {
  std::vector<std::vector<std::pair<double, double>>> lines;
  for (std::size_t at = html.find("<g class=\"series"); at != std::string::npos;
       at = html.find("<g class=\"series", at + 1)) {
    const std::string line = html.substr(at, html.find("</g>", at) - at);
    const std::vector<std::string> x = all_of(line, " cx=\"([0-9.]+)\""),
                                   y = all_of(line, " cy=\"([0-9.]+)\"");
    std::vector<std::pair<double, double>>& points = lines.emplace_back();
    for (std::size_t i = 0; i < x.size(); ++i) points.emplace_back(std::stod(x[i]), std::stod(y.at(i)));
  }
  return lines;
}

TEST(ShareFigure, HasALineForEachNumberOfRowsFromLeftToRight) {
  cache::Cache cache = cache::Cache::in_memory();
  add_ceiling(cache);
  for (const std::int64_t columns : {32768, 1024, 4096}) {
    add_problem(cache, 64, columns, 1000);
    add_problem(cache, 8192, columns, 3000);
  }
  const ReportData report = report_of(cache, {.top = 8});
  const std::string html = shares_html(kinds_of(report));
  EXPECT_NO_THROW(static_cast<void>(test::read_xml(html))) << html;
  const auto lines = lines_in(html);
  ASSERT_EQ(lines.size(), 2U);
  for (const auto& line : lines) {
    ASSERT_EQ(line.size(), 3U);
    EXPECT_LT(line[0].first, line[1].first);
    EXPECT_LT(line[1].first, line[2].first);
    EXPECT_EQ(line[0].second, line[2].second) << "the same share of the ceiling";
  }
  // 25%, 75% and 100% of one scale.
  const double level = std::stod(all_of(html, "class=\"level\" d=\"M[0-9.]+ ([0-9.]+)H").at(0));
  EXPECT_NEAR((lines[0][0].second - lines[1][0].second) / 2, lines[1][0].second - level, 0.2);
  EXPECT_EQ(all_of(html, "<li class=\"shade-[0-9]\">([^<]+)</li>"),
            (std::vector<std::string>{"64 rows", "8192 rows"}));
}

TEST(ShareFigure, ShowsThroughputWithoutACeilingAndNothingOfOneWidth) {
  cache::Cache cache = cache::Cache::in_memory();
  add_problem(cache, 8192, 1024, 1000);
  EXPECT_EQ(shares_html(kinds_of(report_of(cache, {.top = 8}))), "");
  add_problem(cache, 8192, 4096, 3000);
  const ReportData report = report_of(cache, {.top = 8});
  const std::string html = shares_html(kinds_of(report));
  EXPECT_NE(html.find("softmax, bf16, GB/s"), std::string::npos) << html;
  EXPECT_NE(html.find(">3000</text>"), std::string::npos);
  EXPECT_EQ(html.find("class=\"level\""), std::string::npos);
}

TEST(VariantFigure, SaysHowFarEachVariantIsBehindTheWinner) {
  cache::Cache cache = cache::Cache::in_memory();
  const Problem problem = softmax_of(4096);
  std::vector<std::string> variants, configs;
  for (const generator::Config& config : generator::space(problem, {.capability = 90}))
    if (std::find(variants.begin(), variants.end(), config.variant) == variants.end()) {
      variants.emplace_back(config.variant);
      configs.push_back(generator::to_text(config));
    }
  // One was measured on other rows: it cannot be held against the winner.
  Measurement fewer = final_of(problem, device, configs.back(), 1);
  fewer.rows /= 4;
  cache.add(fewer);
  variants.pop_back();
  ASSERT_GE(variants.size(), 3U);
  for (std::size_t i = 0; i < variants.size(); ++i)
    cache.add(final_of(problem, device, configs[i], 100. * static_cast<double>(i + 1)));
  const ReportData report = report_of(cache, {.top = 1});
  const ReportedProblem& reported = report.devices.at(0).problems.at(0);
  ASSERT_EQ(reported.variants.size(), variants.size()) << "also of those beyond the top";
  EXPECT_EQ(reported.variants[0].variant, variants[0]);
  EXPECT_NEAR(reported.variants[2].behind, 2, 1e-9);
  const std::string html = variants_html(kinds_of(report));
  EXPECT_NO_THROW(static_cast<void>(test::read_xml(html))) << html;
  EXPECT_EQ(all_of(html, "class=\"upright\"><span>([^<]+)</span>").size(), variants.size());
  EXPECT_EQ(all_of(html, "<td class=\"heat-0\"><b>(0%)</b></td>").size(), 1U);
  EXPECT_EQ(all_of(html, "<td class=\"heat-6\">(100%|200%)</td>").size(), 2U);
}

TEST(VariantFigure, HoldsVariantsAgainstTheWinnerWithTheSameDriver) {
  cache::Cache cache = cache::Cache::in_memory();
  const Problem problem = softmax_of(4096);
  std::vector<std::string> configs;
  for (const generator::Config& config : generator::space(problem, {.capability = 90})) {
    const std::string text = generator::to_text(config);
    if (configs.empty() || tuner::variant_of(configs[0]) != tuner::variant_of(text)) configs.push_back(text);
  }
  // With the old driver the winner took 100 us and the other variant 130 us; with the new one the winner takes 200 us.
  cache.add(std::vector{final_of(problem, device, configs.front(), 100),
                        final_of(problem, device, configs.back(), 130)});
  Measurement again = final_of(problem, device, configs.front(), 200);
  again.environment["driver"] = "590.2";
  again.created_at = "2030-02-03T04:05:06.000Z";
  cache.add(again);
  const ReportData report = report_of(cache, {.top = 8});
  const std::vector<VariantTime>& variants = report.devices.at(0).problems.at(0).variants;
  ASSERT_EQ(variants.size(), 2U);
  EXPECT_EQ(variants[0].behind, 0);
  EXPECT_NEAR(variants[1].behind, 0.3, 1e-9);
}

TEST(TimeFigure, HasALineForEachProblemAndAMarkForANewDriver) {
  cache::Cache cache = cache::Cache::in_memory();
  for (const std::int64_t columns : {4096, 8192})
    for (int run = 0; run < 6; ++run) {
      const Problem problem = softmax_of(columns);
      Measurement measurement = final_of(problem, device, configs_of(problem).front(), 100);
      measurement.created_at = fmt::format("2030-01-{:02}T00:00:00.000Z", 1 + 4 * run);
      if (run >= 3) {
        measurement.environment["driver"] = "/opt/driver";
        measurement.median_us = columns == 4096 ? 120 : 100;
      }
      cache.add(measurement);
    }
  const ReportData report = report_of(cache, {.top = 8});
  const std::string html = times_html(kinds_of(report), Redaction(std::set<std::string>{}));
  EXPECT_NO_THROW(static_cast<void>(test::read_xml(html))) << html;
  const auto lines = lines_in(html);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NE(html.find("<g class=\"series slower\">"), std::string::npos);
  const auto& slower = lines[1];  // over the other
  ASSERT_EQ(slower.size(), 2U);
  EXPECT_LT(slower[0].first, slower[1].first);
  EXPECT_GT(slower[0].second, slower[1].second) << "a longer time is further up";
  EXPECT_EQ(lines[0][0].second, lines[0][1].second);
  EXPECT_NE(html.find("driver [path]</text>"), std::string::npos) << html;
  EXPECT_NE(html.find("2030-01-13: 120.0 us, +20.0%"), std::string::npos) << html;
}

TEST(TimeFigure, LeavesOutTimesThatNobodyKnows) {
  cache::Cache cache = cache::Cache::in_memory();
  const Problem problem = softmax_of(4096);
  for (const char* created_at : {"2030-13-01T00:00:00.000Z", "long ago", "9999-99-99T99:99"}) {
    Measurement measurement = final_of(problem, device, configs_of(problem).front(), 100);
    measurement.created_at = created_at;
    measurement.environment["driver"] = created_at;
    cache.add(measurement);
  }
  EXPECT_EQ(times_html(kinds_of(report_of(cache, {.top = 8})), Redaction(std::set<std::string>{})), "");
}

TEST(Chart, KeepsLabelsInsideAndApart) {
  Chart chart{.title = "a <chart>", .x_axis = XAxis::days, .lines = {{"", "same", {}}}};
  constexpr double day = 24 * 60 * 60;
  for (const int days : {0, 1, 3, 40, 4000}) {
    chart.lines[0].points = {{day * 20000.5, 1, 1, "first"}, {day * (20000.5 + days), 0.5, 2, "last"}};
    chart.marks = {{day * 20000.5, "driver 1"}, {day * (20000.5 + days), "driver 2"}};
    const std::string html = html_of(chart);
    EXPECT_NO_THROW(static_cast<void>(test::read_xml(html))) << html;
    EXPECT_EQ(html.find("nan"), std::string::npos);
    std::vector<double> places;
    for (const std::string& x : all_of(html, "<text x=\"([0-9.]+)\" y=\"212.0\""))
      places.push_back(std::stod(x));
    for (std::size_t i = 0; i < places.size(); ++i) {
      EXPECT_TRUE(places[i] > 30 && places[i] < 370) << days;
      if (i > 0) {
        EXPECT_GT(places[i] - places[i - 1], 62) << days;
      }
    }
    EXPECT_TRUE(days < 2 || !places.empty()) << days;
  }
}

TEST(Chart, ManyLinesAreToldApartByShadesAndDashes) {
  cache::Cache cache = cache::Cache::in_memory();
  for (int rows = 1; rows <= 9; ++rows)
    for (const std::int64_t columns : {1024, 4096})
      add_problem(cache, 64 << rows, columns, 1000 + 100 * rows);
  const std::string html = shares_html(kinds_of(report_of(cache, {.top = 8})));
  std::vector<std::string> looks = all_of(html, "<g class=\"series ([^\"]+)\"");
  ASSERT_EQ(looks.size(), 9U);
  EXPECT_EQ(looks.front(), "shade-0");
  std::sort(looks.begin(), looks.end());
  EXPECT_EQ(std::adjacent_find(looks.begin(), looks.end()), looks.end());
}

}  // namespace
}  // namespace ce::cli
