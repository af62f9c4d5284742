#include <fmt/format.h>
#include <gtest/gtest.h>

#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "cli/report/causes.hpp"
#include "cli/report/html.hpp"
#include "cli/report/page.hpp"
#include "tests/cli/report_example.hpp"
#include "tests/cli/xml.hpp"
#include "tuner/decide.hpp"

namespace ce::cli {
namespace {

using cache::Measurement;
using generator::Operation;
using generator::Problem;
using test::configs_of;
using test::device;
using test::final_of;
using test::softmax_of;

const std::string other_device = "Other GPU|cc=80|sm=108";

/// A copy that reaches 4000 GB/s, and softmax of two widths, of which the first reaches half of that.
cache::Cache example_cache() {
  cache::Cache cache = cache::Cache::in_memory();
  const Problem copy{.operation = Operation::copy, .rows = 65536, .columns = 4096};
  const auto us_at = [](const Problem& problem, double gbs) {
    return static_cast<double>(generator::traffic(problem).total()) / gbs * 1e-3;
  };
  cache.add(final_of(copy, device, configs_of(copy).front(), us_at(copy, 4000)));
  for (const std::int64_t columns : {4096, 32768}) {
    const Problem problem = softmax_of(columns);
    const std::vector<std::string> configs = configs_of(problem);
    cache.add(final_of(problem, device, configs.at(0), us_at(problem, columns == 4096 ? 2000 : 3000)));
    cache.add(final_of(problem, device, configs.at(1), us_at(problem, 1600)));
  }
  return cache;
}

std::string page_of(const ReportData& report, const Redaction& redaction = {}) {
  std::ostringstream page;
  const std::size_t bytes = write_page(report, redaction, page);
  EXPECT_EQ(bytes, page.str().size());
  return page.str();
}

ReportData report_on(const cache::Cache& cache) { return report_of(cache, {.top = 8}); }

test::XmlContents contents_of(const std::string& page) {
  const std::string doctype = "<!DOCTYPE html>\n";
  EXPECT_EQ(page.substr(0, doctype.size()), doctype);
  return test::read_xml(std::string_view(page).substr(doctype.size()));
}

std::size_t count_of(const std::string& text, const std::string& words) {
  std::size_t count = 0;
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++count;
  return count;
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part;
}

TEST(Html, EscapesMarkupAndWhatIsNoText) {
  EXPECT_EQ(escaped("<a b=\"c\">&amp;"), "&lt;a b=&quot;c&quot;&gt;&amp;amp;");
  EXPECT_EQ(escaped("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(escaped("\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x99\x82"), "\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x99\x82");
  EXPECT_EQ(escaped(std::string("a\0b\x1B", 4)), R"(a\x00b\x1b)");
  EXPECT_EQ(escaped("\xFF<"), R"(\xff&lt;)");
  EXPECT_EQ(escaped("\xC2\x9B \xE2\x80\xAE"), R"(\u009b \u202e)");
}

TEST(ReportPage, IsWellFormedAndShowsWinnersWithTheirShareOfTheCeiling) {
  const std::string page = page_of(report_on(example_cache()));
  const test::XmlContents contents = contents_of(page);
  expect_parts(contents.text,
               {"Some GPU", "copy 4000 GB/s", "2000 GB/s", "50.0%", "3000 GB/s", "75.0%",
                configs_of(softmax_of(4096)).front(), "driver", "580.1", "temperature_c 41",
                "Share of the ceiling over the columns", "What the axes do", "ce-tune explain"});
  EXPECT_EQ(contents.elements.at("details"), 3);
  EXPECT_EQ(contents.elements.at("figure"), 2) << "shares and variants";
  EXPECT_EQ(contents.text.find("History"), std::string::npos);
  expect_parts(contents.text, {"3 problems. All measurements have the same software"});
}

/// A merged database knows several GPUs of one model, each from another day.
TEST(ReportPage, SaysOfWhichGpuAndDayAWinnerIs) {
  cache::Cache cache = example_cache();
  const Problem problem = softmax_of(1024);
  Measurement of_another = final_of(problem, device, configs_of(problem).front(), 10);
  of_another.environment["uuid"] = "GPU-2";
  of_another.created_at = "2030-05-06T07:08:09.000Z";
  cache.add(of_another);
  const std::string page = page_of(report_on(cache));
  contents_of(page);
  const std::string before = "</code><span class=\"timed\">", after = "</span></span>";
  EXPECT_EQ(count_of(page, before + "2030-01-02 03:04 UTC on GPU-1" + after), 3U) << "the copy is one, too";
  EXPECT_EQ(count_of(page, before + "2030-05-06 07:08 UTC on GPU-2" + after), 1U);
}

TEST(ReportPage, LoadsNothing) {
  std::string page = page_of(report_on(example_cache()));
  for (const char* external : {"url(", "@import", "<link", "<img", "<iframe", "//cdn"})
    EXPECT_EQ(page.find(external), std::string::npos) << external;
  const std::regex reference(" (src|href|action|data)=\"([^\"]*)\"");
  for (std::sregex_iterator at(page.begin(), page.end(), reference), end; at != end; ++at)
    EXPECT_EQ((*at)[2].str().substr(0, 1), "#") << at->str();
  EXPECT_EQ(count_of(page, "http"),
            count_of(page, "http-equiv") + count_of(page, "=\"http://www.w3.org/2000/svg\""));
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
}

TEST(ReportPage, TakesTextsForTexts) {
  cache::Cache cache = example_cache();
  const std::string bad = "<script>alert(\"1\")</script> & <b>";
  const Problem problem = softmax_of(1024);
  const std::vector<std::string> configs = configs_of(problem);
  Measurement measurement = final_of(problem, bad + "|cc=90", configs.at(0), 10);
  measurement.environment["host"] = bad;
  cache.add(measurement);
  measurement.config = configs.at(1);
  measurement.outcome = cache::Outcome::quarantined;
  measurement.reason = "wrong: " + bad;
  cache.add(measurement);
  measurement.key.problem = "an older text with " + bad;
  cache.add(measurement);

  const test::XmlContents contents = contents_of(page_of(report_on(cache)));
  EXPECT_EQ(contents.elements.at("script"), 1) << "the page's own";
  EXPECT_EQ(contents.elements.at("title"), 4) << "of the page, of the plot and of its two points";
  expect_parts(contents.text, {bad, "wrong: " + bad, "host " + bad, "an older text with " + bad,
                               "Keys of other versions of ce"});
}

TEST(ReportPage, HasASectionForEachDevice) {
  cache::Cache cache = example_cache();
  const Problem problem = softmax_of(4096);
  cache.add(final_of(problem, other_device, configs_of(problem).front(), 60));
  const std::string page = page_of(report_on(cache));
  const test::XmlContents contents = contents_of(page);
  EXPECT_EQ(count_of(page, "<section id=\"device-"), 2U);
  expect_parts(contents.text, {"No ceiling is on record for this device"});
  expect_parts(page, {"href=\"#device-1\"", "id=\"device-1\"", "href=\"#device-2\"", "id=\"device-2\""});

  const ReportData one = report_of(cache, {.device = other_device, .top = 8});
  ASSERT_EQ(one.devices.size(), 1U);
  EXPECT_EQ(one.devices[0].name, "Other GPU");
}

TEST(ReportPage, OfAnEmptyDatabaseSaysWhatToRun) {
  const std::string page = page_of(report_on(cache::Cache::in_memory()));
  expect_parts(contents_of(page).text, {"ce-tune sweep --op softmax"});
  EXPECT_EQ(page.find("<script"), std::string::npos);
}

TEST(ReportPage, OfManyProblemsHasTheDetailsOfThoseFarthestFromTheirCeilings) {
  cache::Cache cache = example_cache();  // at 50% and 75% of the ceiling
  constexpr int others = 230;
  std::vector<Measurement> list;
  for (int i = 0; i < others; ++i) {
    const Problem problem = softmax_of(5120 + 8 * i);
    const double us = static_cast<double>(generator::traffic(problem).total()) / 3600 * 1e-3;  // at 90%
    list.push_back(final_of(problem, device, configs_of(softmax_of(4096)).front(), us));
    list.back().registers = 1000 + i;
  }
  cache.add(list);
  const ReportData report = report_on(cache);
  const std::string page = page_of(report);
  const test::XmlContents contents = contents_of(page);
  EXPECT_EQ(contents.elements.at("details"), others + 3) << "each problem has a line";
  expect_parts(contents.text, {"details of 200 problems", "ce-tune report --html FILE KEY"});
  EXPECT_EQ(count_of(page, "samples (us)"), 200U);
  for (const ReportedProblem& reported : report.devices.at(0).problems) {
    if (reported.share() > 0.8) continue;
    EXPECT_EQ(count_of(page, escaped(reported.reason)), 1U) << reported.title;
  }
}

TEST(ReportPage, MarksWhatBecameSlower) {
  cache::Cache cache = cache::Cache::in_memory();
  const Problem slower = softmax_of(4096), same = softmax_of(8192);
  for (const auto& [problem, factor] : {std::pair{slower, 1.2}, std::pair{same, 1.}})
    for (int run = 0; run < 6; ++run) {
      Measurement measurement = final_of(problem, device, configs_of(problem).front(), 200 + 0.1 * (run % 3));
      measurement.created_at = fmt::format("2030-01-0{}T00:00:00.000Z", run + 1);
      if (run >= 3) {
        measurement.environment["driver"] = "590.2";
        measurement.median_us *= factor;
      }
      cache.add(measurement);
    }
  const ReportData report = report_on(cache);
  const std::vector<ReportedProblem>& problems = report.devices.at(0).problems;
  ASSERT_EQ(problems.at(0).periods.size(), 2U);
  EXPECT_EQ(problems[0].periods[0].runs, 3U);
  ASSERT_NE(problems[0].finding(), nullptr);
  EXPECT_EQ(problems[0].finding()->winner.verdict, tuner::Verdict::slower);
  EXPECT_EQ(problems.at(1).finding()->winner.verdict, tuner::Verdict::same);

  const std::string page = page_of(report);
  const std::string text = contents_of(page).text;
  expect_parts(text, {"1 of 2 problems became slower", "driver 580.1 to 590.2: 1 slower by 20.0%", "1 same",
                      "What changed", "1 problem as fast as before", "History", "slower +20.0%"});
  EXPECT_EQ(count_of(page, "<em class=\"verdict slower\">slower +20.0%</em>"), 3U)
      << "among the changes, beside the winner and in its history";
  expect_parts(page, {"<a href=\"#cause-1\">", "id=\"cause-1\" open=\"\"", "<a href=\"#p1\">", "id=\"p1\"",
                      "data-change=\"1.2000\""});
  EXPECT_LT(page.find("became slower"), page.find("<section id=\"device-1\"")) << "the verdict goes first";
}

/// A problem with three runs of each driver, the later ones slower by a factor.
void add_change(cache::Cache& cache, const Problem& problem, const std::string& its_device, double factor,
                const std::string& to_driver, const std::string& to_compiler = "13.0") {
  for (int run = 0; run < 6; ++run) {
    Measurement measurement =
        final_of(problem, its_device, configs_of(problem).front(), 200 + 0.1 * (run % 3));
    measurement.created_at = fmt::format("2030-01-0{}T00:00:00.000Z", run + 1);
    if (run >= 3) {
      measurement.environment["driver"] = to_driver;
      measurement.environment["nvrtc"] = to_compiler;
      measurement.median_us *= factor;
    }
    cache.add(measurement);
  }
}

TEST(ReportPage, GroupsChangesByTheirCauseWithTheWorstFirst) {
  cache::Cache cache = cache::Cache::in_memory();
  add_change(cache, softmax_of(1024), device, 1.05, "580.1", "13.1");
  add_change(cache, softmax_of(4096), device, 1.1, "590.2");
  add_change(cache, softmax_of(8192), device, 1.2, "590.2");
  add_change(cache, softmax_of(16384), device, 0.8, "590.2");
  add_change(cache, softmax_of(32768), device, 1, "590.2");
  const ReportData report = report_on(cache);
  const std::vector<Cause> causes = causes_of(report);
  ASSERT_EQ(causes.size(), 2U);
  EXPECT_EQ(causes[0].text, "driver 580.1 to 590.2");
  EXPECT_EQ(causes[1].text, "toolkit 13.0 to 13.1");
  std::vector<std::int64_t> columns;
  for (const Changed& changed : causes[0].problems) columns.push_back(changed.problem->problem->columns);
  EXPECT_EQ(columns, (std::vector<std::int64_t>{8192, 4096, 16384, 32768}));
  EXPECT_EQ(causes[0].count(tuner::Verdict::slower), 2);
  EXPECT_NEAR(causes[0].typical_ratio(tuner::Verdict::slower), 1.15, 1e-3);
  EXPECT_EQ(causes[0].typical_ratio(tuner::Verdict::unsure), 1);
  const std::string text = contents_of(page_of(report)).text;
  expect_parts(
      text, {"3 of 5 problems became slower", "driver 580.1 to 590.2: 2 slower by 15.0%, 1 faster by 20.0%",
             "toolkit 13.0 to 13.1: 1 slower by 5.0%"});
}

TEST(ReportPage, NamesOfACauseOnlyWhatIsSuspect) {
  const auto text_with = [](std::vector<std::string> suspects) {
    ReportData report;
    ReportedProblem& problem = report.devices.emplace_back().problems.emplace_back();
    problem.periods.emplace_back().change = tuner::Finding{
        .changes = {{"driver", "580.1", "590.2"}, {"templates", "block 12345678", "block 87654321"}},
        .suspects = std::move(suspects)};
    return causes_of(report).at(0).text;
  };
  EXPECT_EQ(text_with({"driver"}), "driver 580.1 to 590.2");
  EXPECT_EQ(text_with({"driver", "templates"}), "driver 580.1 to 590.2 or templates");
  EXPECT_EQ(text_with({"machine", "driver"}),
            "the machine (the time of its reference kernel changed, too) or driver 580.1 to 590.2");
  EXPECT_EQ(text_with({}), "driver 580.1 to 590.2, templates") << "of what is the same, all that changed";
}

TEST(ReportPage, HasDevicesWithTroubleFirst) {
  cache::Cache cache = cache::Cache::in_memory();
  add_change(cache, softmax_of(4096), "A GPU|cc=90|sm=132", 1, "590.2");
  add_change(cache, softmax_of(4096), "B GPU|cc=90|sm=132", 1.2, "590.2");
  const ReportData report = report_on(cache);
  EXPECT_EQ(report.devices.at(0).name, "B GPU");
  EXPECT_EQ(report.devices.at(1).name, "A GPU");
  EXPECT_EQ(report.devices[0].problems.at(0).number, 1);
  EXPECT_EQ(report.devices[1].problems.at(0).number, 2) << "numbers are of the page";
}

TEST(ReportPage, NamesNeitherHostsNorPathsWhereTheyAreToBeLeftOut) {
  cache::Cache cache = example_cache();
  const Problem problem = softmax_of(4096);
  Measurement measurement = final_of(problem, device, configs_of(problem).at(1), 100);
  measurement.environment["host"] = "node17.example.org";
  measurement.environment["tag.image"] = "/mnt/images/train.sif";
  measurement.created_at = "2030-03-02T03:04:05.000Z";
  cache.add(measurement);
  measurement.outcome = cache::Outcome::quarantined;
  measurement.config = configs_of(problem).front();
  measurement.reason = "nvcc on node17 said: /home/somebody/kernel.cu: no";
  cache.add(measurement);
  ReportData report = report_on(cache);
  report.database = "/home/somebody/secret/ce.db";
  const std::string redacted = page_of(report, Redaction(report.devices.at(0).hosts));
  for (const char* name : {"node17", "example.org", "/mnt/", "train.sif", "somebody", "secret"})
    EXPECT_EQ(redacted.find(name), std::string::npos) << name;
  expect_parts(contents_of(redacted).text,
               {"ce.db on ", "host [host 1]", "tag.image [path]", "nvcc on [host 1] said: [path]: no"});
  expect_parts(contents_of(page_of(report)).text,
               {"/home/somebody/secret/ce.db on ", "host node17.example.org",
                "tag.image /mnt/images/train.sif", "nvcc on node17 said: /home/somebody/kernel.cu: no"});
}

TEST(Redaction, TakesOutHostsAndPathsAndNothingElse) {
  const Redaction redaction({"node17.example.org", "gpu", "a1", "10.0.0.7"});
  const auto expect = [&](const std::string& text, const std::string& left) {
    EXPECT_EQ(redaction.text(text), left);
  };
  expect("node17.example.org", "[host 4]");
  expect("on node17, node17.example.org and node17.local.", "on [host 4], [host 4] and [host 4].");
  expect("node171 my-node17 gpus gpu a1 10.0.0.7 10", "node171 my-node17 gpus [host 3] [host 2] [host 1] 10");
  expect("/home/x/ce.db:12: error", "[path]:12: error");
  expect("-I/usr/include --out=/tmp/a, \"/tmp/b\" (~/c) ~user/d /",
         "-I/usr/include --out=[path], \"[path]\" ([path]) [path] /");
  expect("see https://gpu/page, file:///etc/hosts", "see https:[path], file:[path]");
  expect("block/warps=8,vec=8 moved 4 GB/s, 3 / 4, a//b", "block/warps=8,vec=8 moved 4 GB/s, 3 / 4, a//b");
  EXPECT_EQ(redaction.html("<gpu>"), "&lt;[host 3]&gt;");
  EXPECT_EQ(redaction.file("/data/gpu/ce.db"), "ce.db");
  EXPECT_EQ(Redaction().text("/home/x on node17"), "/home/x on node17");
  EXPECT_EQ(Redaction().file("/data/ce.db"), "/data/ce.db");
}

TEST(ReportPage, HoldsNoTimesOfOtherRowsAgainstTheWinner) {
  cache::Cache cache = cache::Cache::in_memory();
  const Problem problem = softmax_of(4096);
  const std::vector<std::string> configs = configs_of(problem);
  Measurement fewer = final_of(problem, device, configs.at(1), 50);
  fewer.rows /= 4;
  cache.add(final_of(problem, device, configs.at(0), 100));
  cache.add(fewer);
  const std::string page = page_of(report_on(cache));
  EXPECT_EQ(count_of(page, "-50.0%"), 0U);
  EXPECT_EQ(count_of(page, "<td class=\"num\">+0.0%</td>"), 1U);
  EXPECT_EQ(count_of(page, "<td class=\"num\">-</td>"), 1U);
}

TEST(ReportData, CountsWhatValuesOfAnAxisWinAndCost) {
  const cache::Cache cache = example_cache();
  const ReportData report = report_on(cache);
  std::vector<const ReportedProblem*> problems;
  for (const ReportedProblem& reported : report.devices.at(0).problems)
    if (reported.problem->operation == Operation::softmax) problems.push_back(&reported);
  ASSERT_EQ(problems.size(), 2U);
  std::vector<AxisValue> loads;
  for (const AxisValue& value : axis_values(problems))
    if (value.axis == "load") loads.push_back(value);
  ASSERT_EQ(loads.size(), 2U);
  EXPECT_EQ(loads[0].value, "ca");
  EXPECT_EQ(loads[0].wins, 2);
  EXPECT_FALSE(loads[0].cost);
  EXPECT_EQ(loads[1].value, "cg");
  EXPECT_EQ(loads[1].wins, 0);
  EXPECT_EQ(loads[1].others, 2);
  EXPECT_NEAR(loads[1].cost.value(), (2000. / 1600 + 3000. / 1600) / 2 - 1, 1e-3);
}

TEST(ReportData, KeepsWhatWasAskedFor) {
  const cache::Cache cache = example_cache();
  const Problem problem = softmax_of(4096);
  const cache::Key key{generator::key_text(problem), device};
  const ReportData report = report_of(cache, {.keys = {key}, .top = 1});
  ASSERT_EQ(report.devices.size(), 1U);
  ASSERT_EQ(report.devices[0].problems.size(), 1U);
  const ReportedProblem& reported = report.devices[0].problems[0];
  EXPECT_EQ(reported.summary.key, key);
  EXPECT_EQ(reported.best.size(), 1U);
  EXPECT_EQ(reported.ranked, 2U);
  EXPECT_NEAR(reported.share().value(), 0.5, 1e-6) << "the ceiling is known without being shown";
}

}  // namespace
}  // namespace ce::cli
