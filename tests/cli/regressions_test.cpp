// Databases by hand, and what ce-tune regressions says of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/cli/db_fixture.hpp"
#include "tests/seed.hpp"

namespace ce::cli {
namespace {

using nlohmann::json;
using test::Finished;

class Regressions : public test::DatabaseTest {
 protected:
  using Environment = std::map<std::string, std::string>;

  /// A final of a problem with that many columns, made on a day of January with a driver and more.
  [[nodiscard]] cache::Measurement final_of(std::int64_t columns, int day, double us,
                                            const Environment& environment) const {
    generator::Problem problem = test::softmax;
    problem.columns = columns;
    cache::Measurement made = measurement(0, us);
    made.key.problem = generator::key_text(problem);
    made.samples_us.assign(15, static_cast<float>(us));
    made.spread = 0.002;
    for (const auto& [name, value] : environment) made.environment[name] = value;
    made.created_at = fmt::format("2030-01-{:02}T12:00:00.000Z", day);
    return made;
  }
  /// Two runs with the old driver, two with the new one.
  void add_pair(std::int64_t columns, double before_us, double after_us,
                const Environment& environment = {}) {
    Environment now{{"driver", "590.1"}};
    for (const auto& [name, value] : environment) now[name] = value;
    for (const int day : {1, 2}) {
      cache_.add(final_of(columns, day, before_us * (1 + 0.0005 * day), {}));
      cache_.add(final_of(columns, day + 10, after_us * (1 + 0.0005 * day), now));
    }
  }
  /// Prints both ways. \returns the document
  [[nodiscard]] json asked(std::vector<std::string> words, int status,
                           const std::vector<std::string>& parts) const {
    words.insert(words.begin(), "regressions");
    const Finished finished = text(words);
    EXPECT_EQ(finished.status, status) << finished.out << finished.err;
    for (const std::string& part : parts)
      EXPECT_NE(finished.out.find(part), std::string::npos) << part << " is not in\n" << finished.out;
    words.emplace_back("--json");
    const Finished document = text(words);
    EXPECT_EQ(document.status, status);
    return json::parse(document.out);
  }
  static json verdicts(const json& document) {
    json found;
    for (const json& finding : document.at("findings"))
      found[finding.at("title").get<std::string>()] = finding.at("verdict");
    return found;
  }
};

TEST_F(Regressions, FindsWhatBecameSlower) {
  add_pair(1024, 100, 103);
  add_pair(2048, 200, 190);
  add_pair(4096, 400, 400.4);
  cache_.add(final_of(512, 1, 50, {}));
  const json found = asked({}, 3,
                           {"slower", "1.030", "driver 580.1 -> 590.1",
                            "3 problems compared: 1 slower, 0 unsure, 1 faster, 1 same",
                            "1 problem left out: there is no earlier measurement"});
  EXPECT_EQ(verdicts(found), (json{{"softmax bf16 8192 x 1024", "slower"},
                                   {"softmax bf16 8192 x 2048", "faster"},
                                   {"softmax bf16 8192 x 4096", "same"}}));
  const json& slower = found.at("findings")[0];
  EXPECT_NEAR(slower.at("ratio"), 1.03, 1e-6);
  EXPECT_GT(slower.at("interval")[0], 1);
  EXPECT_EQ(slower.at("runs_before"), 2);
  EXPECT_EQ(slower.at("runs_after"), 2);
  EXPECT_EQ(slower.at("changes"),
            (json::array({{{"what", "driver"}, {"before", "580.1"}, {"after", "590.1"}}})));
  EXPECT_EQ(slower.at("suspects"), json{"driver"});
  EXPECT_EQ(slower.at("kernel").at("config"), configs_[0]);
  EXPECT_EQ(found.at("summary"), (json{{"slower", 1}, {"unsure", 0}, {"faster", 1}, {"same", 1}}));
  EXPECT_EQ(found.at("not_compared"), 1);
  EXPECT_EQ(text({"regressions"}).out.find("x 4096"), std::string::npos)
      << "what is the same is counted only";
  EXPECT_NE(text({"regressions", "--all"}).out.find("x 4096"), std::string::npos);
}

TEST_F(Regressions, NoneIsSuccess) {
  add_pair(2048, 200, 190);
  add_pair(4096, 400, 400.4);
  EXPECT_EQ(asked({}, 0, {"1 faster, 1 same"}).at("summary").at("slower"), 0);
}

TEST_F(Regressions, OnlyUnsureOnesHaveAStatusOfTheirOwn) {
  cache_.add(final_of(1024, 1, 5, {}));
  cache_.add(final_of(1024, 2, 5.1, {{"driver", "590.1"}}));
  EXPECT_EQ(verdicts(asked(
                {}, 4,
                {"unsure",
                 "too few runs before the change to show an effect of 1.5%"}))["softmax bf16 8192 x 1024"],
            "unsure");
}

TEST_F(Regressions, SaysHowManyRunsWouldTell) {
  for (int day = 1; day <= 20; ++day) cache_.add(final_of(1024, day, 6, {}));
  cache_.add(final_of(1024, 21, 6.05, {{"driver", "590.1"}}));
  static_cast<void>(asked(
      {}, 4,
      {" more runs of each would show an effect of 1.5% (ce-tune check --runs ", ", then this again)"}));
}

/// A machine that is slower is not 30 faults of a driver.
TEST_F(Regressions, TheMachineIsTheFirstSuspectWhereTheReferenceMovedToo) {
  for (int i = 0; i < 30; ++i)
    for (const int day : {1, 2, 11, 12}) {
      Environment environment{{"reference", "read"}, {"reference_us", day > 10 ? "28.08" : "27"}};
      if (day > 10) environment["driver"] = "590.1";
      cache_.add(final_of(1024 * (i + 1), day, (day > 10 ? 104 : 100) + 0.01 * day, environment));
    }
  const json found =
      asked({}, 3, {"machine or driver", "30 slower", "changed by +4.0% in the median of 30 problems"});
  for (const json& finding : found.at("findings")) {
    EXPECT_EQ(finding.at("suspects"), (json{"machine", "driver"}));
    EXPECT_NEAR(finding.at("drift"), 0.04, 1e-6);
    EXPECT_EQ(finding.at("taken_out"), 0);
  }
}

/// What another GPU's runs scattered by is no evidence of this one's.
TEST_F(Regressions, OneRunASideRaisesNoAlarmOnANoisyMachine) {
  std::mt19937_64 engine(ce::test::test_seed());
  std::normal_distribution<double> noise(0, 0.005);
  for (int i = 0; i < 100; ++i) {
    cache_.add(final_of(8 * (i + 1), 1, 100 * std::exp(noise(engine)), {}));
    cache_.add(final_of(8 * (i + 1), 11, 100 * std::exp(noise(engine)), {{"driver", "590.1"}}));
  }
  const Finished finished = text({"regressions", "--json"});
  EXPECT_NE(finished.status, 3);
  const json summary = json::parse(finished.out).at("summary");
  EXPECT_EQ(summary.at("slower"), 0);
  EXPECT_EQ(summary.at("faster"), 0);
}

/// How much a device scatters is known by all its problems, and says nothing of another.
TEST_F(Regressions, OnlyOnANoisyDeviceASmallDifferenceTellsNothing) {
  const auto add_noisy = [&](std::int64_t columns, int day, double us, const Environment& environment) {
    cache::Measurement made = final_of(columns, day, us, environment);
    made.key.device = "Other GPU|cc=90|sm=78";
    cache_.add(made);
  };
  for (int i = 0; i < 30; ++i)
    for (const int day : {1, 2, 3, 4}) add_noisy(8 * (i + 1), day, day % 2 == 0 ? 100 : 130, {});
  add_pair(1024, 100, 103);
  for (const int day : {1, 2}) {
    add_noisy(2048, day, 100 + 0.05 * day, {});
    add_noisy(2048, day + 10, 103 + 0.05 * day, {{"driver", "590.1"}});
  }
  EXPECT_EQ(verdicts(asked({}, 3, {"2 problems compared: 1 slower, 1 unsure"})),
            (json{{"softmax bf16 8192 x 1024", "slower"}, {"softmax bf16 8192 x 2048", "unsure"}}));
}

TEST_F(Regressions, TimesOfOtherRowsAreNotCompared) {
  for (const int day : {1, 2}) {
    cache::Measurement before = final_of(1024, day, 50, {});
    before.rows = 4096;
    cache_.add(before);
    cache_.add(final_of(1024, day + 10, 100, {{"driver", "590.1"}}));
  }
  EXPECT_EQ(asked({}, 12, {"1 problem left out: the runs before and after have different numbers of rows"})
                .at("findings")
                .size(),
            0U);
}

/// A user who looks at a winner is told that it is slower today.
TEST_F(Regressions, AreKnownWhereverWinnersAreShown) {
  add_pair(1024, 100, 105);
  add_pair(2048, 200, 200);
  { cache::Cache other = cache::Cache::open(path("other.db")); }
  const std::string id = final_of(1024, 1, 1, {}).key.id(), same = final_of(2048, 1, 1, {}).key.id();
  const std::string said = "slower: 1.050 of the time before (";
  const Finished list = text({"db", "list"});
  EXPECT_NE(list.out.find(id + ": " + said), std::string::npos) << list.out;
  EXPECT_EQ(list.out.find(same + ": "), std::string::npos) << list.out;
  EXPECT_NE(list.out.find(configs_[0] + " (slower)"), std::string::npos);
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"db", "show"}, {"explain"}}) {
    const auto of = [&](const std::string& key) {
      std::vector<std::string> all = words;
      all.push_back(key);
      return all;
    };
    EXPECT_NE(text(of(id)).out.find("now      " + said), std::string::npos);
    EXPECT_NE(text(of(id)).out.find("driver 580.1 -> 590.1; suspect driver"), std::string::npos);
    EXPECT_NEAR(document(of(id)).at("slower").at("ratio"), 1.05, 1e-6);
    EXPECT_EQ(text(of(same)).out.find("slower"), std::string::npos);
    EXPECT_EQ(document(of(same)).at("slower"), nullptr);
  }
  EXPECT_NE(text({"db", "diff", path("other.db")}).out.find(configs_[0] + " (slower)"), std::string::npos);
  const json diff = document({"db", "diff", path("other.db")}), listed = document({"db", "list"});
  for (const json& key : diff.at("keys"))
    EXPECT_EQ(key.at("here").at("slower") == nullptr, key.at("key") == same);
  for (const json& key : listed.at("keys"))
    EXPECT_EQ(key.at("winner").at("slower") == nullptr, key.at("key") == same);
}

/// A gate that compared nothing does not pass, and says why.
TEST_F(Regressions, WhatWasNotComparedIsCountedByReason) {
  static_cast<void>(asked({}, 12, {"0 problems compared"}));
  cache_.add(final_of(1024, 1, 100, {}));
  for (const int day : {1, 2})
    cache_.add(final_of(2048, day, 100, {{"throttle", "hardware thermal slowdown"}}));
  cache::Measurement screened = final_of(4096, 1, 100, {});
  screened.stage = cache::stage_of_screenings;
  cache_.add(screened);
  const json none = asked({}, 12,
                          {"1 problem left out: there is no earlier measurement",
                           "1 problem left out: all measurements were disturbed",
                           "1 problem left out: neither a final nor a check was timed"});
  EXPECT_EQ(none.at("compared"), 0);
  EXPECT_EQ(none.at("not_compared"), 3);
  EXPECT_EQ(none.at("left_out").size(), 3U);
  EXPECT_NE(text({"regressions"}).err.find("0 problems compared; expected 1 or more"), std::string::npos);

  add_pair(512, 200, 190);
  EXPECT_EQ(asked({}, 0, {}).at("compared"), 1);
  EXPECT_EQ(asked({"--require", "1"}, 0, {}).at("compared"), 1);
  static_cast<void>(asked({"--require", "2"}, 12, {"1 problem compared"}));
  add_pair(256, 100, 110);
  static_cast<void>(asked({"--require", "7"}, 3, {"2 problems compared"}));  // a regression is not hidden
  EXPECT_EQ(text({"regressions", "--require", "0"}).status, 2);
}

TEST_F(Regressions, NamesTheSuspectWhereSeveralThingsChanged) {
  // The same binary under another driver and another version of ce.
  add_pair(1024, 100, 110, {{"ce", "0.2.0"}});
  const json same_binary = asked({}, 3, {"driver (both sides ran the same binary)"}).at("findings")[0];
  EXPECT_EQ(same_binary.at("changes").size(), 2U);
  EXPECT_EQ(same_binary.at("suspects"), json{"driver"});
}

TEST_F(Regressions, SinceADay) {
  // The software is the same all the time.
  for (const int day : {1, 2}) cache_.add(final_of(1024, day, 100, {}));
  for (const int day : {5, 6}) cache_.add(final_of(1024, day, 104, {}));
  EXPECT_EQ(asked({}, 12, {"0 problems compared"}).at("not_compared"), 1);
  const json found = asked({"--since", "2030-01-05"}, 3, {"nothing known", "1.040"});
  EXPECT_EQ(found.at("findings")[0].at("runs_before"), 2);
  EXPECT_EQ(found.at("findings")[0].at("suspects"), json::array());
  for (const char* minute : {"2030-01-05T12:00Z", "2030-01-05T12:00:00Z", "2030-01-05T12:00:00.000Z"})
    EXPECT_EQ(asked({"--since", minute}, 3, {}).at("findings")[0].at("runs_after"), 2) << minute;
  EXPECT_EQ(asked({"--since", "2030-01-05T12:00:00.001Z"}, 4, {}).at("findings")[0].at("runs_after"), 1);
  EXPECT_EQ(asked({"--since", "2030-02-01"}, 12, {"1 problem left out: there is no new measurement"})
                .at("not_compared"),
            1);
  for (const char* wrong :
       {"2030-13-01", "2030-02-30", "2030-00-05", "2030-01-05T24:00", "2030-01-05T12:60Z"})
    EXPECT_EQ(text({"regressions", "--since", wrong}).status, 2) << wrong;
}

TEST_F(Regressions, SinceAVersion) {
  cache_.add(final_of(1024, 1, 90, {}));  // of a version that did not say so
  cache_.add(final_of(1024, 2, 100, {{"ce", "0.9.1"}}));
  cache_.add(final_of(1024, 3, 113, {{"ce", "0.10.0"}}));
  cache_.add(final_of(1024, 4, 113.1, {{"ce", "0.10.1"}}));
  EXPECT_EQ(asked({}, 0, {"1 same"}).at("summary").at("same"), 1);
  EXPECT_NEAR(asked({"--since", "0.10"}, 3, {"library 0.9.1 -> 0.10.1"}).at("findings")[0].at("ratio"), 1.131,
              1e-6);
  EXPECT_EQ(
      asked({"--since", "0.9"}, 3, {"library - -> 0.10.1"}).at("findings")[0].at("before").at("median_us"),
      90);
  const Finished wrong = text({"regressions", "--since", "yesterday"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("--since is \"yesterday\""), std::string::npos) << wrong.err;
}

TEST_F(Regressions, AgainstAnotherDatabase) {
  const cache::Measurement shared = final_of(4096, 1, 40, {});
  cache_.add(shared);
  cache_.add(final_of(1024, 2, 116, {}));
  {
    cache::Cache other = cache::Cache::open(path("other.db"));
    other.add(shared);
    other.add(final_of(1024, 1, 100, {}));
  }
  const json found = asked({"--against", path("other.db")}, 3, {"1.160"});
  EXPECT_EQ(found.at("findings").size(), 1U) << "what both have is no news";
  EXPECT_EQ(text({"regressions", "--against", path("absent.db")}).status, 8);
  EXPECT_EQ(text({"regressions", "--against", path("other.db"), "--since", "0.1"}).status, 2);
}

TEST_F(Regressions, TellsThatAnotherConfigIsServed) {
  const auto other = [&](int day, double us, const Environment& environment) {
    cache::Measurement made = final_of(1024, day, us, environment);
    made.config = configs_[1];
    made.template_digest = measurement(1, 1).template_digest;
    return made;
  };
  for (const cache::Measurement& m :
       {final_of(1024, 1, 100, {}), other(1, 120, {}), final_of(1024, 2, 130, {{"driver", "590.1"}}),
        other(2, 121, {{"driver", "590.1"}})})
    cache_.add(m);
  const json found = asked({}, 3, {"was " + configs_[0] + ", is " + configs_[1], "itself: slower, 1.300"});
  EXPECT_NEAR(found.at("findings")[0].at("ratio"), 1.21, 1e-6);
}

}  // namespace
}  // namespace ce::cli
