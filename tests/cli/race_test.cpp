// Races in the record: every command that looks at winners sees those of a library's algorithms, too.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "generator/linear.hpp"
#include "tests/cli/db_fixture.hpp"
#include "tuner/decide.hpp"
#include "tuner/maker.hpp"

namespace ce::cli {
namespace {

using nlohmann::json;
using test::Finished;
using test::read_file;
using testing::HasSubstr;

class Races : public test::DatabaseTest {
 protected:
  static constexpr const char* subject =
      "matmul bf16 m=8192 n=128256 k=4096 a=row:4096 b=col:4096 d=bf16:128256 align=256 workspace=33554432";

  [[nodiscard]] static cache::Measurement of_race(const std::string& config, double us,
                                                  const std::string& version, int day) {
    return {.key = {fmt::format("race {}", subject), "Some GPU|cc=90|sm=132"},
            .config = config,
            .template_digest = "cublasLt " + version,
            .stage = cache::stage_of_finals,
            .rows = 8192,
            .bytes = 3'219'128'320,
            .samples_us = std::vector<float>(10, static_cast<float>(us)),
            .median_us = us,
            .spread = 0.002,
            .environment = {{"uuid", "GPU-1"},
                            {"driver", "580.1"},
                            {"first", first},
                            {"made_by", "cublasLt " + version}},
            .created_at = fmt::format("2030-01-{:02}T12:00:00.000Z", day)};
  }
  /// One final.
  static void add(cache::Cache& cache, const std::string& version, int day, double first_us,
                  double other_us) {
    const std::vector<cache::Measurement> final{of_race(first, first_us, version, day),
                                                of_race(other, other_us, version, day)};
    cache.add(final);
  }
  [[nodiscard]] static std::string key() { return of_race(first, 1, "1", 1).key.id(); }

  static constexpr const char *first = "66/tile=29,stages=36,cluster=2",
                              *other = "66/tile=29,stages=36,cluster=3";
};

TEST_F(Races, AreListedAndShownWithTheirWinner) {
  add(cache_, "13.1.0", 1, 12000, 11000);
  const json keys = document({"db", "list"})["keys"];
  ASSERT_EQ(keys.size(), 1U);
  EXPECT_EQ(keys[0]["problem_text"], fmt::format("race {}", subject));
  EXPECT_EQ(keys[0]["problem"], json());
  EXPECT_EQ(keys[0]["winner"]["config"], other);
  EXPECT_EQ(keys[0]["winner"]["unfinished"], json());
  EXPECT_THAT(text({"db", "list", "--wide"}).out, HasSubstr(subject));
  const json shown = document({"db", "show", key()});
  EXPECT_EQ(shown["ranking"], (json{other, first}));
  EXPECT_EQ(shown["reason"],
            fmt::format("median 11000.00 us, 9.1% ahead of {} (median of 10 samples, spread 0.2%)", first));
  EXPECT_EQ(shown["measurements"][0]["current"], true);
  EXPECT_THAT(text({"db", "show", key()}).out, HasSubstr("cublasLt 13.1.0"));
  EXPECT_EQ(text({"db", "history", key()}).status, 0);

  add(cache_, "13.2.0", 2, 11040, 11000);
  const json newer = document({"db", "show", key()});
  EXPECT_EQ(newer["winner"], first) << "the other gains too little on it";
  EXPECT_EQ(newer["measurements"][0]["current"], false) << "of another version of the library";
}

TEST_F(Races, TravelAsTheRestOfTheRecord) {
  add(cache_, "13.1.0", 1, 12000, 11000);
  ASSERT_EQ(text({"db", "export", path("all.jsonl")}).status, 0);
  ASSERT_EQ(text({"db", "export", "--winners", path("winners.jsonl")}).status, 0);
  const std::string winners = read_file(path("winners.jsonl"));
  EXPECT_THAT(winners, HasSubstr(other));
  EXPECT_THAT(winners, testing::Not(HasSubstr("GPU-1")));
  ASSERT_EQ(ce_tune({"db", "import", path("all.jsonl"), "--db", path("there.db")}).status, 0);
  const json same = document({"db", "diff", path("there.db")});
  EXPECT_EQ(same["measurements"], (json{{"shared", 2}, {"only_here", 0}, {"only_there", 0}}));
  EXPECT_EQ(same["keys"][0]["there"]["config"], other);

  {
    cache::Cache there = cache::Cache::open(path("there.db"));
    add(there, "13.1.0", 2, 10000, 11000);
  }
  EXPECT_EQ(document({"db", "diff", path("there.db")})["keys"][0]["there"]["config"], first);
  ASSERT_EQ(text({"db", "merge", path("there.db")}).status, 0);
  EXPECT_EQ(document({"db", "show", key()})["winner"], first) << "the last final decides";
  EXPECT_EQ(document({"db", "prune", "--keep", "0"})["measurements"], 0);
  EXPECT_EQ(text({"db", "verify"}).status, 0);
}

TEST_F(Races, HistoryBeginsALineWhereTheLibraryChanges) {
  add(cache_, "13.1.0", 1, 12000, 11000);
  cache_.add(std::vector<cache::Measurement>{of_race("70/tile=1", 10000, "13.2.0", 2),
                                             of_race("71/tile=1", 9000, "13.2.0", 2)});
  const std::string history = text({"db", "history", key(), "--wide"}).out;
  EXPECT_THAT(history, HasSubstr("cublasLt 13.1.0"));
  EXPECT_THAT(history, HasSubstr("cublasLt 13.2.0"));
  EXPECT_THAT(history, HasSubstr("71/tile=1"));
}

/// Finals stay, which tell what became slower.
TEST_F(Races, ScreeningsOfALibraryThatAnotherHasReplacedAreSuperseded) {
  add(cache_, "13.1.0", 1, 12000, 11000);
  cache::Measurement screened = of_race("67/tile=1", 13000, "13.1.0", 1);
  screened.stage = cache::stage_of_screenings;
  cache_.add(screened);
  EXPECT_EQ(document({"db", "prune", "--keep", "0"})["measurements"], 0);
  cache_.add(std::vector<cache::Measurement>{of_race("70/tile=1", 10000, "13.2.0", 2),
                                             of_race("71/tile=1", 9000, "13.2.0", 2)});
  EXPECT_EQ(document({"db", "prune", "--keep", "0"})["measurements"], 1);
  EXPECT_EQ(document({"db", "show", key()})["winner"], "71/tile=1");
}

TEST_F(Races, BundlesHaveTheirDecisionsAndNeedNoKernelForThem) {
  add(cache_, "13.1.0", 1, 12000, 11000);
  const json written = document({"bundle", path("b.jsonl"), "--cubins"});
  EXPECT_EQ(written["decisions"], 1);
  EXPECT_EQ(written["left_out"], 0);
  const cache::Cache bundle = cache::Cache::of_bundle(path("b.jsonl"));
  const auto decision = tuner::decide_race(bundle.history(of_race(first, 1, "1", 1).key), "cublasLt 13.1.0");
  ASSERT_TRUE(tuner::is_finished(decision));
  EXPECT_EQ(decision->winner.text(), other);

  cache::Measurement cut = of_race(first, 9000, "13.1.0", 2);
  cut.key.problem += "0";
  cut.environment["cut_short"] = "1 s were over";
  cache_.add(cut);
  EXPECT_EQ(document({"bundle", path("b.jsonl")})["left_out"], 1);
}

TEST_F(Races, ALibraryThatMakesThemSlowerIsFound) {
  for (const int day : {1, 2}) add(cache_, "13.1.0", day, 11000 + day, 12000 + day);
  for (const int day : {11, 12}) add(cache_, "13.2.0", day, 11880 + day, 12900 + day);
  const Finished found = text({"regressions"});
  EXPECT_EQ(found.status, 3) << found.out << found.err;
  EXPECT_THAT(found.out, HasSubstr("1 problem compared: 1 slower"));
  EXPECT_THAT(found.out, HasSubstr("maker cublasLt 13.1.0 -> cublasLt 13.2.0"));
  EXPECT_THAT(found.out, HasSubstr("1.08"));
}

/// Whose ways all became slower, and of which the later race has others, too.
TEST_F(Races, WhatBecameSlowerIsTheWinnerAloneAndItsMakerIsNamedOnce) {
  const auto add_tiles = [&](const std::string& version, int day, const std::vector<std::string>& tiles,
                             double us) {
    std::vector<cache::Measurement> final;
    for (const std::string& tile : tiles) {
      final.push_back(of_race(tile, us, version, day));
      us += 500;
    }
    cache_.add(final);
  };
  for (const int day : {1, 2}) add_tiles("1", day, {"tile=128x192", "tile=128x256", "tile=128x128"}, 10000);
  for (const int day : {11, 12})
    add_tiles("2", day, {"tile=128x192", "tile=128x256", "tile=256x128", "tile=64x64"}, 11000);
  const Finished found = text({"regressions", "--json"});
  EXPECT_EQ(found.status, 3) << found.err;
  const json findings = json::parse(found.out)["findings"];
  ASSERT_EQ(findings.size(), 1U);
  const json& finding = findings[0];
  EXPECT_EQ(finding["before"]["config"], "tile=128x192");
  EXPECT_EQ(finding["after"]["config"], "tile=128x192");
  EXPECT_EQ(finding["changes"],
            (json::array({{{"what", "maker"}, {"before", "cublasLt 1"}, {"after", "cublasLt 2"}}})));
  EXPECT_EQ(finding["suspects"], (json{"maker"}));
}

/// A repair may have lost whom they were beaten by.
TEST_F(Races, WhatHasLostItsWinnerDecidesNothingAndIsNotCompared) {
  add(cache_, "13.1.0", 1, 12000, 11000);
  cache::Measurement loser = of_race(first, 12000, "13.1.0", 2);
  loser.environment["winner"] = "70/tile=1";
  cache_.add(loser);
  const json shown = document({"db", "show", key()});
  EXPECT_EQ(shown["winner"], other) << "of the race before";
  loser = of_race(first, 15000, "13.2.0", 3);
  loser.environment["winner"] = other;
  cache_.add(loser);
  EXPECT_EQ(document({"db", "show", key()})["winner"], json());
  EXPECT_EQ(text({"regressions"}).status, 12);
}

TEST_F(Races, OfTilesOfOtherTemplatesAreHistory) {
  cache::Measurement old = of_race("tile=128x192", 100, "1", 1);
  old.template_digest = "nvrtc 13.0 sm_90, templates 00000000";
  cache_.add(old);
  const json shown = document({"db", "show", key()});
  EXPECT_EQ(shown["winner"], json());
  EXPECT_EQ(shown["measurements"][0]["current"], false);
  cache::Measurement todays = of_race("tile=128x256", 200, "1", 1);
  todays.template_digest =
      tuner::maker_with_templates("nvrtc 13.0 sm_90", generator::linear_template_digest(false));
  EXPECT_THAT(todays.template_digest, testing::MatchesRegex("nvrtc 13.0 sm_90, templates [0-9a-f]+"));
  cache_.add(todays);
  EXPECT_EQ(document({"db", "show", key()})["winner"], "tile=128x256");
}

TEST_F(Races, ReportsHaveThem) {
  add(cache_, "13.1.0", 1, 12000, 11000);
  cache_.add(measurement(0, 60));
  ASSERT_EQ(text({"report", "--html", path("r.html")}).status, 0);
  const std::string page = read_file(path("r.html"));
  EXPECT_THAT(page, HasSubstr(other));
  EXPECT_THAT(page, HasSubstr("races"));
  EXPECT_THAT(page, testing::Not(HasSubstr("Keys of other versions")));
}

TEST_F(Races, WhatIsOfKernelsAloneIsRefused) {
  add(cache_, "13.1.0", 1, 12000, 11000);
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"pin", key(), first, "--why", "because"},
                                             {"explain", key()},
                                             {"source", key()},
                                             {"time", key()}}) {
    const Finished refused = text(words);
    EXPECT_EQ(refused.status, 2) << words.front();
    EXPECT_THAT(refused.err, HasSubstr("a race (matmul bf16 m=8192")) << words.front();
  }
}

}  // namespace
}  // namespace ce::cli
