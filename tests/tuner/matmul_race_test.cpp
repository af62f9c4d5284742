#include "tuner/matmul_race.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ce/log.hpp"
#include "generator/linear.hpp"
#include "runtime/host/device.hpp"
#include "tests/environment.hpp"
#include "tests/tuner/device_decorator.hpp"
#include "tests/tuner/fixture.hpp"
#include "tuner/decide.hpp"
#include "tuner/doubt.hpp"
#include "tuner/key.hpp"
#include "tuner/maker.hpp"

namespace ce::tuner {
namespace {

using runtime::Matmul;

/// Algorithms that do nothing, each in a time of its own.
class TimedLibrary : public runtime::MatmulLibrary {
 public:
  std::string name() const override { return version; }
  std::vector<runtime::MatmulAlgorithm> algorithms(const Matmul& matmul, std::int64_t, int most) override {
    ++questions;
    std::vector<runtime::MatmulAlgorithm> all;
    for (const std::string& text : order)
      if (static_cast<int>(all.size()) < most && (text != "large" || matmul.m >= 100))
        all.push_back({.text = text});
    return all;
  }
  std::vector<runtime::MatmulAlgorithm> neighbours(const Matmul&, const runtime::MatmulAlgorithm& of,
                                                   std::int64_t, int most) override {
    std::vector<runtime::MatmulAlgorithm> all;
    for (const std::string& text : near[of.text])
      if (static_cast<int>(all.size()) < most) all.push_back({.text = text});
    return all;
  }
  std::optional<runtime::MatmulAlgorithm> algorithm(const Matmul& matmul, std::string_view text,
                                                    std::int64_t) override {
    ++questions;
    if (!times.contains(std::string(text)) || (text == "large" && matmul.m < 100)) return std::nullopt;
    return runtime::MatmulAlgorithm{.text = std::string(text)};
  }
  void launch(const Matmul& matmul, const runtime::MatmulAlgorithm& algorithm,
              const runtime::MatmulOperands& operands, Stream) override {
    auto* d = static_cast<float*>(operands.d);
    for (std::int64_t i = 0; i < matmul.m * matmul.n; ++i) {
      const float value = static_cast<float>(i) + (i == matmul.m * matmul.n - 1 ? errors[algorithm.text] : 0);
      d[i] = matmul.accumulates ? d[i] + value : value;
    }
    last_us = times.at(algorithm.text);
    ++launches[algorithm.text];
  }

  std::string version = "library 1";
  std::vector<std::string> order{"first", "slow", "large", "fast", "middling", "slower", "slowest"};
  std::map<std::string, float> times{{"first", 100},   {"slow", 150},   {"large", 70},   {"fast", 80},
                                     {"middling", 90}, {"slower", 200}, {"slowest", 300}};
  std::map<std::string, std::vector<std::string>> near;  ///< that it does not name by itself
  std::map<std::string, int> launches;
  std::map<std::string, float> errors;  ///< of the last element
  int questions = 0;                    ///< about algorithms
  float last_us = 0;
};

class TimedDevice : public test::DeviceDecorator {
 public:
  TimedDevice() : DeviceDecorator(runtime::open_host_device()) {}
  runtime::MatmulLibrary& matmuls() override { return library; }
  std::vector<float> time(int samples, const std::function<void()>& before,
                          const std::function<void()>& timed) override {
    std::vector<float> times;
    for (int i = 0; i < samples; ++i) {
      before();
      timed();
      times.push_back(library.last_us);
    }
    return times;
  }
  TimedLibrary library;
};

struct MatmulRace : testing::Test {
  [[nodiscard]] static TokenMatmul product(std::int64_t tokens) {
    return {{.m = tokens, .n = 8, .k = 4, .d_stride = 8}, &Matmul::m};
  }

  [[nodiscard]] runtime::MatmulOperands operands() { return {.d = d.data()}; }

  /// Of the product of 33 to 64 tokens.
  [[nodiscard]] cache::Key key() const {
    return race_key("matmul f32 m=64 n=8 k=4 a=row:0 b=row:0 d=f32:8 align=16 workspace=0", device.model());
  }
  [[nodiscard]] std::map<std::string, cache::Measurement> by_config() const {
    std::map<std::string, cache::Measurement> found;
    for (cache::Measurement& measurement : cache.measurements(key()))
      EXPECT_TRUE(found.emplace(measurement.config, std::move(measurement)).second) << "raced twice";
    return found;
  }

  std::vector<float> d = std::vector<float>(128 * 8, 7.f);
  TimedDevice device;
  cache::Cache cache = cache::Cache::in_memory();
};

TEST_F(MatmulRace, TheFastestWinsAndTheFirstIsToldBeside) {
  const Matmul matmul = product(50).matmul;
  const auto all = device.library.algorithms(matmul, 0, 16);
  const RaceResult result = race(device, matmul, operands(), all, 0);
  EXPECT_EQ(result.winner, "fast");
  EXPECT_EQ(result.first, "first");
  EXPECT_EQ(result.winner_us, 80);
  EXPECT_EQ(result.first_us, 100);
  EXPECT_EQ(result.runners, 6);
  EXPECT_GT(device.library.launches["fast"], device.library.launches["slowest"])
      << "finals are of the fastest";
}

TEST_F(MatmulRace, TheFirstIsTimedToTheEndHoweverSlowItIs) {
  device.library.times["first"] = 1000;
  const Matmul matmul = product(50).matmul;
  const auto all = device.library.algorithms(matmul, 0, 16);
  EXPECT_EQ(race(device, matmul, operands(), all, 0).first_us, 1000);
  EXPECT_EQ(device.library.launches["first"], device.library.launches["fast"]);
}

TEST_F(MatmulRace, TheFirstStaysWhereOthersAreHardlyFaster) {
  device.library.times["fast"] = 99.8f;
  device.library.times["middling"] = 99.9f;
  const Matmul matmul = product(50).matmul;
  const auto all = device.library.algorithms(matmul, 0, 16);
  EXPECT_EQ(race(device, matmul, operands(), all, 0).winner, "first");
  device.library.times["fast"] = 99;
  EXPECT_EQ(race(device, matmul, operands(), all, 0).winner, "fast");
}

TEST_F(MatmulRace, ABudgetEndsItAfterTheFirst) {
  const Matmul matmul = product(50).matmul;
  const auto all = device.library.algorithms(matmul, 0, 16);
  const RaceResult result = race(device, matmul, operands(), all, 1e-9);
  EXPECT_EQ(result.runners, 1);
  EXPECT_EQ(result.winner, "first");
}

TEST_F(MatmulRace, AnAlgorithmWhoseResultDiffersIsLeftOut) {
  device.library.errors["fast"] = 20;
  for (const bool accumulates : {false, true}) {
    Matmul matmul = product(50).matmul;
    matmul.accumulates = accumulates;
    const auto all = device.library.algorithms(matmul, 0, 16);
    const RaceResult result = race(device, matmul, operands(), all, 0);
    EXPECT_EQ(result.winner, "middling");
    EXPECT_EQ(result.runners, 5);
    EXPECT_EQ(result.wrong, 1);
  }
  device.library.errors["fast"] = 0.01f;
  const Matmul matmul = product(50).matmul;
  const auto all = device.library.algorithms(matmul, 0, 16);
  EXPECT_EQ(race(device, matmul, operands(), all, 0).winner, "fast") << "another order of the sum";
  device.library.errors["fast"] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(race(device, matmul, operands(), all, 0).winner, "middling");
}

TEST_F(MatmulRace, UntilARaceTheLibrarysFirstIsChosen) {
  MatmulChooser chooser(device, cache);
  EXPECT_TRUE(chooser.is_open(product(50), 0));
  EXPECT_EQ(chooser.choose(product(50), 0).text, "first");
  chooser.tune(product(50), operands(), 0, 0);
  EXPECT_FALSE(chooser.is_open(product(50), 0));
  EXPECT_EQ(chooser.choose(product(50), 0).text, "fast");
}

TEST_F(MatmulRace, OfAKnownProductTheLibraryIsAskedOnce) {
  MatmulChooser(device, cache).tune(product(50), operands(), 0, 0);
  MatmulChooser chooser(device, cache);
  for (const std::int64_t tokens : {50, 40}) {  // each number of tokens is a product of its own
    device.library.questions = 0;
    for (int call = 0; call < 3; ++call) {
      EXPECT_FALSE(chooser.is_open(product(tokens), 0));
      EXPECT_EQ(chooser.choose(product(tokens), 0).text, "fast");
    }
    EXPECT_EQ(device.library.questions, 1) << "every call asks, and a library may search for long";
  }
}

TEST_F(MatmulRace, NeighboursOfTheFastestRaceAgainstIt) {
  device.library.times.insert({{"faster", 60.f}, {"hardly faster", 79.9f}, {"wrong", 10.f}, {"far", 1.f}});
  device.library.near = {{"fast", {"wrong", "hardly faster", "faster"}}, {"first", {"far"}}};
  device.library.errors["wrong"] = 20;
  MatmulChooser chooser(device, cache);
  chooser.tune(product(50), operands(), 0, 0);
  EXPECT_EQ(chooser.choose(product(50), 0).text, "faster");
  EXPECT_EQ(device.library.launches["far"], 0) << "a neighbour of another";
  MatmulChooser later(device, cache);
  EXPECT_EQ(later.choose(product(50), 0).text, "faster") << "the library does not name it, but knows it";

  device.library.near = {{"fast", {"hardly faster"}}};
  chooser.tune(product(50), operands(), 0, 0);
  EXPECT_EQ(chooser.choose(product(50), 0).text, "fast") << "half a percent is noise";
}

TEST_F(MatmulRace, NeighboursRaceInTheTimeThatIsLeft) {
  device.library.times["faster"] = 60;
  device.library.near = {{"first", {"faster"}}};
  MatmulChooser chooser(device, cache);
  chooser.tune(product(50), operands(), 0, 1e-9);
  EXPECT_EQ(device.library.launches["faster"], 0);
  EXPECT_EQ(chooser.choose(product(50), 0).text, "first");
  EXPECT_TRUE(cache.keys().empty()) << "the first alone has beaten nobody";
}

TEST_F(MatmulRace, AWinnerThatTheLibraryDoesNotKnowGivesWayToTheFirst) {
  MatmulChooser(device, cache).tune(product(50), operands(), 0, 0);
  device.library.times.erase("fast");
  EXPECT_EQ(MatmulChooser(device, cache).choose(product(50), 0).text, "first");
}

TEST_F(MatmulRace, NumbersOfTokensUpToAPowerOfTwoShareTheWinner) {
  MatmulChooser chooser(device, cache);
  chooser.tune(product(50), operands(), 0, 0);
  EXPECT_EQ(chooser.choose(product(33), 0).text, "fast");
  EXPECT_EQ(chooser.choose(product(64), 0).text, "fast");
  EXPECT_TRUE(chooser.is_open(product(65), 0));
  EXPECT_EQ(chooser.choose(product(65), 0).text, "first");
  TokenMatmul other = product(50);
  other.matmul.accumulates = true;
  EXPECT_TRUE(chooser.is_open(other, 0));
  EXPECT_TRUE(chooser.is_open(product(50), 1024)) << "with another workspace";
  other = product(50);
  other.matmul.any_order = true;
  EXPECT_TRUE(chooser.is_open(other, 0)) << "with other algorithms";
}

TEST_F(MatmulRace, AWinnerThatIsNotForASizeGivesWayToTheFirst) {
  MatmulChooser chooser(device, cache);
  chooser.tune(product(127), operands(), 0, 0);
  EXPECT_EQ(chooser.choose(product(127), 0).text, "large");
  EXPECT_EQ(chooser.choose(product(70), 0).text, "first");
}

TEST_F(MatmulRace, TheDatabaseKeepsTheWinnerForTheLibrarysVersion) {
  MatmulChooser(device, cache).tune(product(50), operands(), 0, 0);
  device.library.launches.clear();
  MatmulChooser later(device, cache);
  EXPECT_FALSE(later.is_open(product(40), 0));
  EXPECT_EQ(later.choose(product(40), 0).text, "fast");
  EXPECT_TRUE(device.library.launches.empty());
  device.library.version = "library 2";
  MatmulChooser newer(device, cache);
  EXPECT_TRUE(newer.is_open(product(40), 0));
}

TEST_F(MatmulRace, EveryAlgorithmIsMeasured) {
  device.library.errors["slow"] = 20;
  MatmulChooser(device, cache).tune(product(50), operands(), 0, 0);
  const auto all = by_config();
  ASSERT_EQ(all.size(), 6U) << "large is for more tokens";
  const cache::Measurement& wrong = all.at("slow");
  EXPECT_EQ(wrong.outcome, cache::Outcome::quarantined);
  EXPECT_EQ(wrong.reason, "its result differs from the result of first");
  for (const auto& [config, measurement] : all) {
    EXPECT_EQ(measurement.template_digest, "library 1");
    EXPECT_EQ(measurement.rows, 50);
    EXPECT_EQ(measurement.bytes, 4 * (50 * 4 + 4 * 8 + 50 * 8));
    EXPECT_EQ(measurement.environment.at("made_by"), "library 1");
    EXPECT_EQ(measurement.environment.at("first"), "first");
    EXPECT_TRUE(measurement.environment.contains("ce"));
    if (config == "slow") continue;
    EXPECT_EQ(measurement.median_us, static_cast<double>(device.library.times[config]));
    const bool is_final = config != "slowest";
    EXPECT_EQ(measurement.stage, is_final ? cache::stage_of_finals : cache::stage_of_screenings) << config;
    EXPECT_EQ(measurement.samples_us.size(), is_final ? 10U : 2U) << config;
  }
  const auto decision = decide(cache, key());
  ASSERT_TRUE(is_finished(decision));
  EXPECT_EQ(decision->winner.text(), "fast");
  EXPECT_EQ(decision->reason, "median 80.00 us, 12.5% ahead of middling (median of 10 samples, spread 0.0%)");
}

TEST_F(MatmulRace, TheFinalOfNeighboursDecides) {
  device.library.times.insert({{"faster", 60.f}, {"hardly faster", 79.9f}});
  device.library.near = {{"fast", {"hardly faster"}}};
  MatmulChooser chooser(device, cache);
  chooser.tune(product(50), operands(), 0, 0);
  const std::vector<cache::Measurement> all = cache.measurements(key());
  EXPECT_EQ(all.size(), 8U) << "fast has raced twice";
  for (const cache::Measurement& measurement : all) {
    if (measurement.stage != cache::stage_of_finals) continue;
    EXPECT_THAT(measurement.config, testing::AnyOf("fast", "hardly faster"));
  }
  const auto decision = decide(cache, key());
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->winner.text(), "fast");
  EXPECT_EQ(decision->reason, "it runs without a race, and hardly faster gains less than 0.5%");
  EXPECT_EQ(MatmulChooser(device, cache).choose(product(50), 0).text, "fast");
}

TEST_F(MatmulRace, ANeighbourThatIsWrongIsKnownToBeAlsoWhereNoOtherRaces) {
  device.library.times["wrong"] = 10;
  device.library.near = {{"fast", {"wrong"}}};
  device.library.errors["wrong"] = 20;
  MatmulChooser(device, cache).tune(product(50), operands(), 0, 0);
  const auto all = by_config();
  ASSERT_TRUE(all.contains("wrong"));
  EXPECT_EQ(all.at("wrong").outcome, cache::Outcome::quarantined);
  EXPECT_EQ(all.at("fast").stage, cache::stage_of_finals) << "that of the first race decides";
}

TEST_F(MatmulRace, TheLogCountsWhatHasRacedOnce) {
  device.library.times.insert({{"faster", 60.f}, {"hardly faster", 79.9f}});
  device.library.near = {{"fast", {"hardly faster", "faster"}}};
  std::vector<std::string> said;
  set_log_sink([&](LogLevel, std::string_view text) { said.emplace_back(text); });
  MatmulChooser(device, cache).tune(product(50), operands(), 0, 0);
  set_log_sink({});
  ASSERT_EQ(said.size(), 1U);
  EXPECT_THAT(said[0], testing::HasSubstr(
                           "faster in 60.0 us, the best of 8; the library's first choice took 100.0 us"))
      << "six and two neighbours";
}

TEST_F(MatmulRace, TheWinnerIsWhatMeasurementsSay) {
  MatmulChooser(device, cache).tune(product(50), operands(), 0, 0);
  std::vector<cache::Measurement> later;
  for (auto [config, measurement] : by_config()) {
    if (config != "middling" && config != "first") continue;
    measurement.median_us = config == "middling" ? 88 : 89;
    measurement.environment["winner"] = "middling";
    measurement.created_at = "2100-01-01T00:00:00.000Z";
    later.push_back(std::move(measurement));
  }
  cache.add(later);
  EXPECT_EQ(MatmulChooser(device, cache).choose(product(50), 0).text, "middling")
      << "the last final decides, whose configs were timed beside each other";
  cache::Measurement out = later.back();
  out.config = "middling";
  out.outcome = cache::Outcome::quarantined;
  out.reason = "wrong, after all";
  out.samples_us.clear();
  out.median_us = 0;
  out.created_at = "2100-01-01T00:00:01.000Z";
  cache.add(out);
  EXPECT_EQ(MatmulChooser(device, cache).choose(product(50), 0).text, "first");
}

/// As a repair may leave it.
TEST_F(MatmulRace, ARaceThatHasLostItsWinnerIsMadeAgain) {
  MatmulChooser(device, cache).tune(product(50), operands(), 0, 0);
  auto all = by_config();
  EXPECT_EQ(all.at("middling").environment.at("winner"), "fast");
  const auto without = [&](const std::string& lost) {
    cache::Cache left = cache::Cache::in_memory();
    for (const auto& [config, measurement] : all)
      if (config != lost) left.add(measurement);
    return left;
  };
  cache::Cache damaged = without("fast");
  MatmulChooser chooser(device, damaged);
  EXPECT_TRUE(chooser.is_open(product(50), 0));
  EXPECT_EQ(chooser.choose(product(50), 0).text, "first") << "and not the next, middling";
  EXPECT_FALSE(has_final(decide(damaged, key())));
  chooser.tune(product(50), operands(), 0, 0);
  MatmulChooser later(device, damaged);
  EXPECT_FALSE(later.is_open(product(50), 0));
  EXPECT_EQ(later.choose(product(50), 0).text, "fast");

  cache::Measurement earlier = all.at("fast");
  earlier.created_at = "2000-01-01T00:00:00.000Z";
  earlier.outcome = cache::Outcome::quarantined;  // which a race looks at, too
  earlier.reason = "wrong, at that time";
  earlier.samples_us.clear();
  earlier.median_us = 0;
  cache::Cache of_another = without("fast");
  of_another.add(earlier);
  EXPECT_TRUE(MatmulChooser(device, of_another).is_open(product(50), 0)) << "a row of another race";

  cache::Cache merged = without("fast");
  merged.add(all.at("fast"));
  EXPECT_EQ(MatmulChooser(device, merged).choose(product(50), 0).text, "fast");
  for (const char* lost : {"middling", "first", "slowest"}) {
    cache::Cache left = without(lost);
    MatmulChooser its(device, left);
    EXPECT_FALSE(its.is_open(product(50), 0)) << lost;
    EXPECT_EQ(its.choose(product(50), 0).text, "fast") << lost;
  }
}

TEST_F(MatmulRace, ARaceThatHasLostAllThatWereRightIsMadeAgain) {
  device.library.errors["fast"] = 20;
  MatmulChooser(device, cache).tune(product(50), operands(), 0, 0);
  cache::Cache damaged = cache::Cache::in_memory();
  damaged.add(by_config().at("fast"));
  EXPECT_TRUE(MatmulChooser(device, damaged).is_open(product(50), 0));
}

TEST_F(MatmulRace, WaysOfTemplatesOfAnotherTimeAreHistory) {
  const RaceResult result =
      race(device, product(50).matmul, operands(), device.library.algorithms(product(50).matmul, 0, 16), 0);
  const cache::Key of_both = race_key("anything", device.model());
  const auto keep = [&](const std::string& digest) {
    const RaceSubject subject{
        .text = "anything", .maker = maker_with_templates("compiler 1", digest), .rows = 50, .bytes = 100};
    RaceWinners(device, cache).keep(subject, result);
    return subject.maker;
  };
  EXPECT_EQ(keep("00000000000000000000000000000000"), "compiler 1, templates 00000000");
  EXPECT_EQ(maker_of_race(cache.measurements(of_both)), "");
  EXPECT_FALSE(decide(cache, of_both));
  const std::string todays = keep(generator::linear_template_digest(true));
  EXPECT_EQ(maker_of_race(cache.measurements(of_both)), todays);
  keep("00000000000000000000000000000000");
  EXPECT_EQ(maker_of_race(cache.measurements(of_both)), todays) << "whoever came last";
  ASSERT_TRUE(decide(cache, of_both));
  EXPECT_EQ(decide(cache, of_both)->winner.text(), "fast");
}

/// A race is one for all numbers of tokens of its key.
TEST_F(MatmulRace, ALaterRaceDecidesHoweverFewItsTokensAre) {
  const auto keep = [&](std::int64_t rows, const char* cut_short) {
    RaceResult result =
        race(device, product(50).matmul, operands(), device.library.algorithms(product(50).matmul, 0, 16), 0);
    result.cut_short = cut_short;
    const RaceSubject subject{.text = "anything", .maker = "somebody 1", .rows = rows, .bytes = 100};
    RaceWinners(device, cache).keep(subject, result);
    RaceWinners later(device, cache);
    return later.of(subject);
  };
  EXPECT_TRUE(keep(60, "1 s were over").open);
  device.library.times["middling"] = 70;
  const RaceWinners::Known known = keep(50, "");
  EXPECT_FALSE(known.open);
  EXPECT_EQ(known.winner, "middling");
}

TEST_F(MatmulRace, AWinnerOfTheSitesDatabaseServes) {
  const test::Folder folder;
  const std::string site = (folder.path() / "site.db").string();
  {
    cache::Cache of_site = cache::Cache::open(site);
    MatmulChooser(device, of_site).tune(product(50), operands(), 0, 0);
  }
  const ce::test::ScopedEnvironment site_db("CE_SITE_DB", site), none("CE_SYSTEM_DB", "none");
  cache::Cache own = cache::Cache::with_layers(cache::Cache::in_memory());
  MatmulChooser chooser(device, own);
  EXPECT_FALSE(chooser.is_open(product(50), 0));
  EXPECT_EQ(chooser.choose(product(50), 0).text, "fast");
}

TEST_F(MatmulRace, OfDatabasesBelowTheNearestThatCameToAnEndServes) {
  const test::Folder folder;
  const auto tuned = [&](const char* name, float middling, bool to_the_end) {
    const std::string path = (folder.path() / name).string();
    cache::Cache own = cache::Cache::open(path);
    device.library.times["middling"] = middling;
    const Matmul matmul = product(50).matmul;
    RaceResult result = race(device, matmul, operands(), device.library.algorithms(matmul, 0, 16), 0);
    if (!to_the_end) result.cut_short = "1 s were over";
    RaceWinners(device, own)
        .keep({.text = "anything", .maker = "somebody 1", .rows = 50, .bytes = 100}, result);
    return path;
  };
  const auto winner = [&](const std::string& site, const std::string& system) {
    const ce::test::ScopedEnvironment site_db("CE_SITE_DB", site), system_db("CE_SYSTEM_DB", system);
    cache::Cache own = cache::Cache::with_layers(cache::Cache::in_memory());
    return RaceWinners(device, own).of({.text = "anything", .maker = "somebody 1"}).winner;
  };
  const std::string fast = tuned("fast.db", 90, true), middling = tuned("middling.db", 10, true),
                    cut_short = tuned("cut_short.db", 90, false);
  EXPECT_EQ(winner(fast, middling), "fast");
  EXPECT_EQ(winner(middling, fast), "middling");
  EXPECT_EQ(winner(cut_short, middling), "middling") << "it came to its end";
}

TEST_F(MatmulRace, ARaceThatWasCutShortServesAndIsMadeAgain) {
  device.library.times["faster"] = 60;
  device.library.near = {{"fast", {"faster"}}};
  RaceResult result =
      race(device, product(50).matmul, operands(), device.library.algorithms(product(50).matmul, 0, 16), 0);
  result.cut_short = "1 s were over";
  const RaceSubject subject{.text = "anything", .maker = "somebody 1", .rows = 50, .bytes = 100};
  RaceWinners winners(device, cache);
  winners.keep(subject, result);
  EXPECT_FALSE(winners.of(subject).open) << "not in this process";
  RaceWinners later(device, cache);
  EXPECT_EQ(later.of(subject).winner, "fast");
  EXPECT_TRUE(later.of(subject).open);
  const auto decision = decide(cache, race_key("anything", device.model()));
  EXPECT_TRUE(has_final(decision));
  EXPECT_EQ(unfinished_because(decision->winner.measurement), "1 s were over");
  const RaceWinners::Known other = later.of({.text = "anything", .maker = "somebody 2"});
  EXPECT_EQ(other.winner, "");
  EXPECT_TRUE(other.open);
}

TEST_F(MatmulRace, ARaceThatWasCutShortIsMadeAgainWhereThereIsMoreTime) {
  RaceResult result =
      race(device, product(50).matmul, operands(), device.library.algorithms(product(50).matmul, 0, 16), 0);
  result.cut_short = "1 s were over";
  const RaceSubject subject{.text = "anything", .maker = "somebody 1", .rows = 50, .bytes = 100};
  RaceWinners(device, cache, 1).keep(subject, result);
  for (const auto& [seconds, open] : {std::pair(0.5, false), std::pair(1., false), std::pair(2., true)})
    EXPECT_EQ(RaceWinners(device, cache, seconds).of(subject).open, open) << seconds << " s";
  EXPECT_TRUE(RaceWinners(device, cache).of(subject).open) << "without a bound";
}

TEST_F(MatmulRace, WaysThatAreAllWrongAreNotTriedAgain) {
  RaceResult result;
  result.wrong = 1;
  result.runs.push_back({.name = "first", .wrong = "its result differs"});
  const RaceSubject subject{.text = "anything", .maker = "somebody 1", .rows = 50, .bytes = 100};
  RaceWinners(device, cache).keep(subject, result);
  RaceWinners winners(device, cache);
  EXPECT_TRUE(winners.of(subject).all_wrong);
  EXPECT_FALSE(winners.of(subject).open);
  EXPECT_FALSE(winners.of({.text = "anything", .maker = "somebody 2"}).all_wrong);
}

TEST_F(MatmulRace, AWinnerThatTheLibraryDoesNotKnowIsRacedAnew) {
  RaceResult result;
  result.winner = result.first = "of another version";
  result.runners = 2;
  for (const char* name : {"of another version", "fast"})
    result.runs.push_back({.name = name, .samples_us = {1, 1, 1}, .is_final = true});
  MatmulChooser chooser(device, cache);
  const cache::Key key = race_key(fmt::format("{} workspace=0", product(50).bucket().key()), device.model());
  RaceWinners(device, cache)
      .keep({.text = key.problem.substr(std::string_view("race ").size()),
             .maker = device.matmuls().name(),
             .rows = 50,
             .bytes = 100},
            result);
  EXPECT_TRUE(chooser.is_open(product(50), 0));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the last final decides
  chooser.tune(product(50), operands(), 0, 0);
  MatmulChooser later(device, cache);
  EXPECT_FALSE(later.is_open(product(50), 0));
  EXPECT_EQ(later.choose(product(50), 0).text, "fast");
}

}  // namespace
}  // namespace ce::tuner
