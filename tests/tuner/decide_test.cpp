// Who wins among given measurements.
#include "tuner/decide.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>

#include "ce/error.hpp"
#include "generator/source.hpp"
#include "generator/variant.hpp"
#include "tests/seed.hpp"
#include "tests/tuner/fixture.hpp"
#include "tuner/doubt.hpp"
#include "tuner/maker.hpp"
#include "tuner/statistics.hpp"
#include "tuner/turns.hpp"

namespace ce::tuner {
namespace {

using cache::Measurement;
using cache::Outcome;
using generator::Operation;
using testing::HasSubstr;

/// The n-th config of the space of a problem that every row variant serves.
std::string config(std::size_t n) {
  static const std::vector<generator::Config> all =
      generator::space(test::small_problem(), {.shared_bytes_per_block = 100 << 10});
  return to_text(all.at(n));
}

Measurement measured(const std::string& text, double median_us, int stage = 0, int registers = 32) {
  return {.config = text,
          .template_digest = generator::template_digest(Operation::softmax, text.substr(0, text.find('/'))),
          .stage = stage,
          .samples_us = {static_cast<float>(median_us)},
          .median_us = median_us,
          .registers = registers};
}

Measurement quarantined(const std::string& text) {
  Measurement measurement = measured(text, 0);
  measurement.outcome = Outcome::quarantined;
  measurement.reason = "wrong answer";
  return measurement;
}

std::string winner(const std::vector<Measurement>& measurements) {
  const auto decision = decide(measurements, Operation::softmax);
  return decision ? decision->winner.text() : "nobody";
}

Measurement of_rows(std::int64_t rows, const std::string& text, double median_us) {
  Measurement measurement = measured(text, median_us, 1);
  measurement.rows = rows;
  return measurement;
}

std::optional<Decision> decided_by_a_database_of(const std::vector<Measurement>& measurements) {
  cache::Cache database = cache::Cache::in_memory();
  const generator::Problem problem = test::small_problem();
  const cache::Key key{.problem = generator::key_text(problem), .device = "device"};
  std::vector<Measurement> of_key = measurements;
  for (Measurement& measurement : of_key) measurement.key = key;
  database.add(of_key);
  return decide(database, key, problem);
}

TEST(Decide, NothingWins) { EXPECT_EQ(winner({}), "nobody"); }

TEST(Decide, TheSmallestMedianWins) {
  const auto decision =
      decide(std::vector{measured(config(0), 12), measured(config(1), 10), measured(config(2), 11)},
             Operation::softmax);
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->winner.text(), config(1));
  ASSERT_EQ(decision->ranking.size(), 3);
  EXPECT_EQ(decision->ranking[0].text(), config(1));
  EXPECT_EQ(decision->ranking[1].text(), config(2));
  EXPECT_EQ(decision->ranking[2].text(), config(0));
}

TEST(Decide, TheReasonNamesTheRunnerUpAndTheDistance) {
  const auto decision =
      decide(std::vector{measured(config(0), 12), measured(config(1), 10)}, Operation::softmax);
  ASSERT_TRUE(decision);
  EXPECT_THAT(decision->reason, HasSubstr(config(0)));
  EXPECT_THAT(decision->reason, HasSubstr("20.0%"));
  EXPECT_THAT(decide(std::vector{measured(config(0), 12)}, Operation::softmax)->reason, HasSubstr("only"));
}

TEST(Decide, TheHighestStageCounts) {
  // Fast in the screening, slower than its rival in the final; and the fastest of all never got there.
  EXPECT_EQ(winner({measured(config(0), 5), measured(config(1), 6), measured(config(2), 1),
                    measured(config(0), 9, 1), measured(config(1), 8, 1)}),
            config(1));
}

TEST(Decide, AMeasurementOfALowerStageAfterwardsChangesNothing) {
  EXPECT_EQ(winner({measured(config(0), 9, 1), measured(config(1), 8, 1), measured(config(0), 1, 0)}),
            config(1));
}

TEST(Decide, MoreRowsGoBeforeFewerWhoseTimesAreOfLessWork) {
  const std::vector<Measurement> merged{of_rows(4100, config(0), 50), of_rows(8192, config(1), 90),
                                        of_rows(8192, config(2), 80), of_rows(1, config(3), 2)};
  const auto decision = decide(merged, Operation::softmax);
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->winner.text(), config(2));
  EXPECT_THAT(decision->reason, HasSubstr("12.5% ahead of " + config(1)));
  EXPECT_EQ(decision->ranking[2].text(), config(0));
  EXPECT_EQ(decided_by_a_database_of(merged)->winner.text(), config(2));
  EXPECT_EQ(decide(std::vector{merged[0], merged[2]}, Operation::softmax)->reason,
            "the only config in the final");
}

/// Of one config, too: memory may have been short the second time.
TEST(Decide, ALaterFinalOfFewerRowsChangesNothing) {
  const std::vector<Measurement> all{of_rows(1024, config(0), 100), of_rows(1024, config(1), 103),
                                     of_rows(1024, config(2), 150), of_rows(600, config(0), 62),
                                     of_rows(600, config(1), 60)};
  EXPECT_EQ(winner(all), config(0));
  const auto decision = decided_by_a_database_of(all);
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->winner.text(), config(0));
  EXPECT_EQ(decision->winner.measurement.median_us, 100);
}

TEST(Decide, TheLatestOfAStageCounts) {
  EXPECT_EQ(winner({measured(config(0), 5), measured(config(1), 6), measured(config(0), 7)}), config(1));
}

TEST(Decide, ATieGoesToFewerRegisters) {
  const double close = 10 * (1 + tie / 2);
  EXPECT_EQ(winner({measured(config(0), 10, 0, 64), measured(config(1), close, 0, 40)}), config(1));
  const auto decision = decide(std::vector{measured(config(0), 10, 0, 64), measured(config(1), close, 0, 40)},
                               Operation::softmax);
  EXPECT_EQ(decision->ranking.front().text(), config(1));
  EXPECT_THAT(decision->reason, HasSubstr("registers (40)"));
  // The fastest may itself have the fewest: still it is no further ahead than that.
  EXPECT_THAT(decide(std::vector{measured(config(0), 10, 0, 40), measured(config(1), close, 0, 64)},
                     Operation::softmax)
                  ->reason,
              HasSubstr("registers (40)"));
  // Beyond the tie no rule asks for registers.
  EXPECT_EQ(winner({measured(config(0), 10, 0, 64), measured(config(1), 10 * (1 + 2 * tie), 0, 40)}),
            config(0));
}

TEST(Decide, ATieOfRegistersGoesToTheSmallerText) {
  const std::string smaller = std::min(config(0), config(1)), larger = std::max(config(0), config(1));
  EXPECT_EQ(winner({measured(larger, 10), measured(smaller, 10 * (1 + tie / 2))}), smaller);
}

TEST(Decide, ALaterQuarantineWithdraws) {
  EXPECT_EQ(winner({measured(config(0), 5), measured(config(1), 6), quarantined(config(0))}), config(1));
  EXPECT_EQ(winner({measured(config(0), 5, 1), quarantined(config(0))}), "nobody");
}

TEST(Decide, AMeasurementAfterAQuarantineCounts) {
  EXPECT_EQ(winner({quarantined(config(0)), measured(config(0), 5), measured(config(1), 6)}), config(0));
}

TEST(Decide, OtherTemplatesAreHistory) {
  Measurement old = measured(config(0), 1, 1);
  old.template_digest = "0123";
  EXPECT_EQ(winner({old}), "nobody");
  EXPECT_EQ(winner({old, measured(config(1), 6)}), config(1));
  EXPECT_FALSE(is_current(old, Operation::softmax));
  EXPECT_TRUE(is_current(measured(config(0), 1), Operation::softmax));
  // The digest covers the operation's part too.
  EXPECT_FALSE(is_current(measured(config(0), 1), Operation::cross_entropy));
  // A quarantine under old templates says nothing of today's.
  old.outcome = Outcome::quarantined;
  EXPECT_EQ(winner({measured(config(0), 5), old}), config(0));
}

TEST(Decide, UnknownVariantsAreIgnored) {
  Measurement unknown = measured(config(0), 1, 1);
  unknown.config = "no_such_variant/warps=1";
  EXPECT_EQ(winner({unknown, measured(config(1), 6)}), config(1));
  for (const char* digest : {"0123", ""}) {
    unknown.template_digest = digest;
    EXPECT_EQ(winner({unknown}), "nobody") << '"' << digest << '"';
    EXPECT_FALSE(is_current(unknown, Operation::softmax)) << '"' << digest << '"';
  }
}

TEST(Decide, ConfigsThatNobodyCanBuildAreIgnored) {
  Measurement damaged = measured(config(0), 1, 1);
  damaged.config.resize(damaged.config.size() - 4);
  EXPECT_EQ(winner({damaged}), "nobody") << damaged.config;
  EXPECT_EQ(winner({damaged, measured(config(1), 6)}), config(1));
  EXPECT_EQ(decided_by_a_database_of({damaged}), std::nullopt);
  const auto decision = decided_by_a_database_of({damaged, measured(config(1), 6, 1)});
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->winner.text(), config(1));
}

/// As in a database that a user edited.
/// An import can name configs that no search tries: they would serve unseen, with the time that it says.
TEST(Decide, ConfigsThatCannotWorkForTheKeyAreIgnored) {
  const std::string device =
      "GPU|cc=90|sm=132|l2=52428800|smem=232448/233472|regs=65536|threads=2048|mig=none";
  generator::Problem problem = test::small_problem();
  problem.columns = 32768;
  const std::string good =
      to_text(generator::space(problem, {.capability = 90, .shared_bytes_per_block = 232448}).at(0));
  for (const char* bad :
       {"warp/warps=1,vec=4,lanes=3,rows=1,load=ca,store=wb",          // no value of the axis
        "warp/warps=1,vec=4,lanes=32,rows=1,load=ca,store=wb",         // too much for its registers
        "bandwidth/warps=8,vec=4,tile=8192,load=evict_last,store=wb",  // serves other operations
        "strided/warps=8,vec=4,load=ca,store=wb", "nothing/warps=1"}) {
    SCOPED_TRACE(bad);
    std::vector<Measurement> both(2, of_rows(40, good, 100));
    for (Measurement& measurement : both) measurement.key = {generator::key_text(problem), device};
    both[1].config = bad;
    both[1].median_us = 0.5;
    try {
      both[1].template_digest = measured(bad, 1).template_digest;
    } catch (const InvalidArgument&) {  // a variant that is none has no templates
    }
    const auto among = decide(both, Operation::softmax);
    ASSERT_TRUE(among);
    EXPECT_EQ(among->winner.text(), good);
    cache::Cache database = cache::Cache::in_memory();
    database.add(both);
    const auto served = decide(database, both[0].key, problem);
    ASSERT_TRUE(served);
    EXPECT_EQ(served->winner.text(), good);
  }
}

TEST(Decide, TemplatesOfAnotherVariantAreNotToday) {
  const Measurement right = measured(config(0), 6, 1);
  Measurement wrong = right;
  for (std::size_t i = 0; wrong.template_digest == right.template_digest; ++i)
    wrong = measured(config(i), 5, 1);
  wrong.template_digest = right.template_digest;
  EXPECT_EQ(winner({wrong, right}), right.config);
  EXPECT_EQ(decided_by_a_database_of({wrong, right})->winner.text(), right.config);
  EXPECT_EQ(decided_by_a_database_of({wrong}), std::nullopt);
}

TEST(Decide, TheSameDataInAnyOrder) {
  const std::uint64_t seed = test::test_seed();
  std::mt19937_64 random(seed);
  std::vector<Measurement> data;
  for (std::size_t i = 0; i < 8; ++i) {
    // Many ties, of medians and of registers.
    const auto draw = [&](int from, int to) { return std::uniform_int_distribution(from, to)(random); };
    data.push_back(measured(config(i), 10 + 0.03 * draw(0, 3), 0, 8 * draw(3, 5)));
    if (i % 2 == 0) data.push_back(measured(config(i), 10 + 0.03 * draw(0, 3), 1, 8 * draw(3, 5)));
  }
  const auto first = decide(data, Operation::softmax);
  ASSERT_TRUE(first);
  for (int turn = 0; turn < 50; ++turn) {
    std::shuffle(data.begin(), data.end(), random);
    const auto again = decide(data, Operation::softmax);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->winner.text(), first->winner.text()) << "seed " << seed;
    EXPECT_EQ(again->reason, first->reason) << "seed " << seed;
  }
}

TEST(Statistics, MedianOfKnownSamples) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median(std::vector<float>{7}), 7);
  EXPECT_EQ(median(std::vector<float>{9, 1, 5}), 5);
  EXPECT_EQ(median(std::vector<float>{4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median(std::vector<float>{1, 1, 1, 1000}), 1);
}

TEST(Statistics, SpreadOfKnownSamples) {
  EXPECT_EQ(spread({}), 0);
  EXPECT_EQ(spread(std::vector<float>{7}), 0);
  EXPECT_EQ(spread(std::vector<float>{7, 7, 7}), 0);
  EXPECT_DOUBLE_EQ(spread(std::vector<float>{5, 1, 4, 2, 3}), (4. - 2.) / 3.);
  EXPECT_DOUBLE_EQ(spread(std::vector<float>{1, 3}), (2.5 - 1.5) / 2.);
  // One outlier does not make a spread.
  EXPECT_EQ(spread(std::vector<float>{2, 2, 2, 2, 2, 2, 2, 900}), 0);
}

TEST(Statistics, MiddleMeanOfKnownSamples) {
  EXPECT_EQ(middle_mean({}), 0);
  EXPECT_EQ(middle_mean(std::vector<float>{7}), 7);
  EXPECT_EQ(middle_mean(std::vector<float>{900, 2, 3, 0}), 2.5)
      << "without the lowest and the highest quarter";
  EXPECT_EQ(middle_mean(std::vector<float>{1, 2, 3, 4, 900}), 3);
}

TEST(Decide, ADatabaseIsAskedForWhatDecidesAlone) {
  const std::uint64_t seed = test::test_seed();
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<int>(random() % n); };
  int finished = 0;
  for (int round = 0; round < 200; ++round) {
    cache::Cache cache = cache::Cache::in_memory();
    const cache::Key key{"problem", "device"};
    const int how_many = below(40);
    for (int i = 0; i < how_many; ++i) {
      const std::string text = config(random() % 6);
      Measurement m =
          below(6) == 0 ? quarantined(text) : measured(text, 100 + below(4) * 0.3, below(3) - 1, below(3));
      if (below(8) == 0) m.template_digest = "of yore";
      if (below(8) == 0) m.rows = 512;
      if (below(16) == 0) m.median_us = std::numeric_limits<double>::quiet_NaN();
      m.key = key;
      // Three finals, of which the last was cut short.
      const int final = below(3);
      m.created_at = fmt::format("2030-01-01T00:00:0{}.000Z", final);
      if (final == 2) m.environment["cut_short"] = "only 1 of 6 configs were ready in time";
      cache.add(m);
    }
    const auto all = decide(cache.measurements(key), Operation::softmax);
    const auto asked = decide(cache, key, generator::Problem{.rows = 1024, .columns = 1024});
    ASSERT_EQ(all.has_value(), asked.has_value());
    if (!all) continue;
    EXPECT_EQ(asked->winner.text(), all->winner.text());
    EXPECT_EQ(asked->winner.measurement.created_at, all->winner.measurement.created_at);
    EXPECT_EQ(asked->winner.measurement.median_us, all->winner.measurement.median_us);
    EXPECT_EQ(asked->ranking.front().text(), all->winner.text());
    EXPECT_EQ(asked->reason, all->reason);
    finished += has_final(all);
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GT(finished, 50);
}

/// The second GPU is 5% slower, and its finals have other runners-up.
TEST(Decide, AMergeOfTwoGpusKeepsTheWinnersThatBothAgreeOn) {
  const std::uint64_t seed = test::test_seed();
  std::mt19937_64 random(seed);
  const auto final_of = [&](const std::string& day, std::size_t winner, double speed, std::size_t first) {
    std::vector<Measurement> list;
    for (std::size_t i : {winner, first, first + 1, first + 2}) {
      if (i == winner && !list.empty()) continue;
      const double behind = list.empty() ? 1 : 1.004 + 0.02 * std::uniform_real_distribution<>()(random);
      list.push_back(measured(config(i), 100 * speed * behind, 1));
      list.back().created_at = day;
    }
    return list;
  };
  for (int problem = 0; problem < 60; ++problem) {
    const std::size_t best = random() % 10;
    const auto one = final_of("2030-01-01T00:00:00.000Z", best, 1, random() % 4),
               other = final_of("2030-01-02T00:00:00.000Z", best, 1.05, 5 + random() % 4);
    ASSERT_EQ(winner(one), config(best));
    ASSERT_EQ(winner(other), config(best));
    for (const auto& [first, second] : {std::pair(one, other), std::pair(other, one)}) {
      std::vector<Measurement> merged = first;
      merged.insert(merged.end(), second.begin(), second.end());
      std::stable_sort(merged.begin(), merged.end(),
                       [](const auto& a, const auto& b) { return a.created_at < b.created_at; });
      ASSERT_EQ(winner(merged), config(best)) << "problem " << problem;
      ASSERT_EQ(decided_by_a_database_of(merged)->winner.text(), config(best)) << "problem " << problem;
    }
  }
}

TEST(Decide, SaysWhatIsToBeDoubted) {
  const auto doubt = [](const char* name, const char* value) {
    return tuner::doubt_of({.environment = {{name, value}}});
  };
  EXPECT_EQ(doubt("throttle", "none"), "");
  EXPECT_EQ(doubt("throttle", "idle, power cap"), "") << "part of the GPU";
  EXPECT_EQ(doubt("compute_processes", "1"), "") << "this one";
  EXPECT_EQ(doubt("compute_processes", "0"), "") << "not even this one, which NVML does not see";
  EXPECT_EQ(doubt("throttle", "software thermal"), "clocks were held down: software thermal");
  EXPECT_EQ(doubt("throttle", "hardware slowdown"), "clocks were held down: hardware slowdown");
  EXPECT_EQ(doubt("throttle", "power brake"), "clocks were held down: power brake");
  EXPECT_EQ(doubt("compute_processes", "3"), "3 processes were on the GPU");
  EXPECT_EQ(doubt("disturbance", "it shook"), "it shook");
  EXPECT_EQ(tuner::doubt_of({.environment = {{"compute_processes", "2"},
                                             {"disturbance", "it shook"},
                                             {"throttle", "hardware thermal"}}}),
            "it shook; clocks were held down: hardware thermal; 2 processes were on the GPU");
}

TEST(Steadiness, IsToldFromWorkThatNeverChanges) {
  const std::vector<float> references{30, 31, 30, 45, 29};
  EXPECT_TRUE(tuner::is_steady(31, references));
  EXPECT_TRUE(tuner::is_steady(20, references)) << "faster disturbs nothing";
  EXPECT_FALSE(tuner::is_steady(45, references));
}

TEST(Steadiness, TurnsWithSlowerReferencesAreLeftOut) {
  const std::vector<Turn> turns{{30, {{1, 2}, {10}}}, {45, {{3}, {20}}}, {31, {{4}, {30}}}};
  const std::vector<float> references{30, 45, 31};
  std::vector<float> samples{0};
  append_samples(steady_of(turns, references), 0, samples);
  EXPECT_THAT(samples, testing::ElementsAre(0, 1, 2, 4));
  const std::vector<float> of_slower_turns{45, 45, 46, 30, 31};
  EXPECT_EQ(steady_of(turns, of_slower_turns).size(), 3) << "beside other turns";
}

}  // namespace
}  // namespace ce::tuner
