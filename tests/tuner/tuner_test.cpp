// The Tuner from end to end on the host device, with a database of its own.
#include "tuner/tuner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/built_version.hpp"
#include "ce/error.hpp"
#include "tests/tuner/fixture.hpp"
#include "tuner/bench.hpp"
#include "tuner/maker.hpp"
#include "tuner/search.hpp"
#include "tuner/verify/trial.hpp"
#include "tuner/verify/verify.hpp"

namespace ce::test {
namespace {

using cache::Measurement;
using cache::Outcome;
using generator::Problem;
using tuner::Report;
using tuner::Tuner;

TEST_F(TunerTest, TunesOnceAndRemembersWithItsEnvironment) {
  cache::Cache database = open();
  FaultyDevice device;
  const Report report = Tuner(device, database, quick_settings()).tune(small_problem());
  EXPECT_GT(report.configs, 4);
  EXPECT_EQ(report.tried, 4);
  EXPECT_EQ(report.known, 0);
  EXPECT_EQ(report.compiled, 4);
  EXPECT_EQ(report.timed_rows, small_problem().rows);
  EXPECT_TRUE(report.quarantined.empty());
  EXPECT_GT(report.median_us, 0);
  EXPECT_GT(report.gbs, 0);
  EXPECT_NE(report.reason, "");
  EXPECT_EQ(device.allocations(), 0) << "scratch memory outlived the tuning";

  const generator::Config& winner = report.winner;
  tuner::Verifier verifier(device, small_problem(), 99);
  EXPECT_EQ(verifier.mismatch(tuner::Kernel(device, tuner::build(device, database, small_problem(), winner))),
            std::nullopt);

  const std::vector<Measurement> written = open().measurements(report.key);
  EXPECT_EQ(std::ranges::count_if(written, is_of_screening), 4);
  EXPECT_EQ(std::ranges::count_if(written, [](const Measurement& m) { return m.stage > 0; }), 2)
      << "of the last round";
  EXPECT_EQ(written.size(), 4 + 3) << "and a semifinalist that was left behind";
  for (const Measurement& measurement : written) {
    EXPECT_EQ(measurement.outcome, Outcome::measured);
    EXPECT_TRUE(tuner::is_current(measurement, small_problem().operation));
    if (!is_of_screening(measurement)) {
      EXPECT_EQ(measurement.samples_us.size(), measurement.stage > 0 ? 6 : 3);
    }
    EXPECT_EQ(measurement.rows, small_problem().rows);
    EXPECT_EQ(measurement.bytes, 2 * 40 * 100 * 4);
    EXPECT_NE(measurement.compile_key, "");
    EXPECT_EQ(measurement.environment.count("compiler"), 1);
    EXPECT_EQ(measurement.environment.count("host"), 1);
    EXPECT_EQ(measurement.environment.at("ce"), built_version());
    EXPECT_EQ(measurement.environment.count("reference_us"), 0) << "of GPUs only";
  }
}

TEST_F(TunerTest, ASecondTuningCompilesAndMeasuresNothing) {
  cache::Cache database = open();
  FaultyDevice device;
  const Report first = Tuner(device, database, quick_settings()).tune(small_problem());
  const std::size_t before = database.measurements(first.key).size();

  // Another process would see the same: another device, another connection.
  cache::Cache reopened = open();
  FaultyDevice again;
  const Report second = Tuner(again, reopened, quick_settings()).tune(small_problem());
  EXPECT_EQ(second.winner, first.winner);
  EXPECT_EQ(second.reason, first.reason);
  EXPECT_EQ(second.configs, first.configs);
  EXPECT_EQ(second.known, second.tried);
  EXPECT_EQ(second.compiled, 0);
  EXPECT_EQ(again.compiled(), 0);
  EXPECT_EQ(reopened.measurements(first.key).size(), before);
}

TEST_F(TunerTest, ANoisyFinalIsNotRepeated) {
  cache::Cache database = open();
  FaultyDevice device;
  Tuner tuner(device, database, quick_settings());
  const Report first = tuner.tune(small_problem());
  // Had the final come out slower than the screening of the others: they were not good enough for it then,
  // and are not now.
  for (Measurement measurement : database.measurements(first.key)) {
    if (measurement.stage == 0) continue;
    measurement.median_us *= 1000;
    database.add(measurement);
  }
  const std::size_t before = database.measurements(first.key).size();
  static_cast<void>(tuner.tune(small_problem()));
  EXPECT_EQ(database.measurements(first.key).size(), before);
}

TEST_F(TunerTest, StopsBetweenConfigsAndGoesOnWhereItStopped) {
  std::stop_source stop;
  {
    cache::Cache database = open();
    FaultyDevice device;
    Tuner tuner(device, database, quick_settings());
    const tuner::Hooks hooks{.progress =
                                 [&](const tuner::Progress& progress) {
                                   if (progress.done == 2) stop.request_stop();
                                 },
                             .stop = stop.get_token()};
    try {
      static_cast<void>(tuner.tune(small_problem(), hooks));
      ADD_FAILURE() << "was not stopped";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::interrupted) << error.what();
    }
    EXPECT_EQ(open().measurements(tuner.key(small_problem())).size(), 2);
    EXPECT_EQ(device.allocations(), 0);
  }
  cache::Cache database = open();
  FaultyDevice device;
  const Report report = Tuner(device, database, quick_settings()).tune(small_problem());
  EXPECT_EQ(report.tried, 4);
  EXPECT_EQ(report.known, 2);
  std::map<std::string, int> screened;
  for (const Measurement& measurement : database.measurements(report.key))
    if (is_of_screening(measurement)) ++screened[measurement.config];
  EXPECT_EQ(screened.size(), 4);
  for (const auto& [config, times] : screened) EXPECT_EQ(times, 1) << config;
}

TEST_F(TunerTest, AStopBeforeTheFirstConfigMeasuresNothing) {
  cache::Cache database = open();
  FaultyDevice device;
  Tuner tuner(device, database, quick_settings());
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THROW(static_cast<void>(tuner.tune(small_problem(), {.stop = stop.get_token()})), Error);
  EXPECT_TRUE(database.measurements(tuner.key(small_problem())).empty());
}

TEST_F(TunerTest, ProgressRisesToItsTotal) {
  cache::Cache database = open();
  FaultyDevice device;
  std::vector<tuner::Progress> told;
  const Report report =
      Tuner(device, database, quick_settings())
          .tune(small_problem(), {.progress = [&](const tuner::Progress& p) { told.push_back(p); }});
  ASSERT_FALSE(told.empty());
  std::vector<std::string> stages;
  for (std::size_t i = 0; i < told.size(); ++i) {
    const tuner::Progress& now = told[i];
    const bool first = i == 0 || told[i - 1].stage != now.stage;
    if (first) stages.push_back(now.stage);
    EXPECT_EQ(now.done, first ? 1 : told[i - 1].done + 1);
    EXPECT_LE(now.done, now.total);
    if (!first) {
      EXPECT_EQ(now.total, told[i - 1].total);
      EXPECT_GE(now.seconds, told[i - 1].seconds);
    }
    const bool last = i + 1 == told.size() || told[i + 1].stage != now.stage;
    if (last) {
      EXPECT_EQ(now.done, now.total) << now.stage;
    }
    EXPECT_NE(now.best, "");
    EXPECT_GT(now.best_us, 0);
    EXPECT_GT(now.best_gbs, 0);
  }
  EXPECT_EQ(stages, (std::vector<std::string>{"screening", "semifinal", "final"}));
  EXPECT_EQ(told.front().total, report.tried);
}

TEST_F(TunerTest, TimesFewerRowsWhereScratchMemoryIsShort) {
  cache::Cache database = open();
  FaultyDevice device;
  tuner::Settings settings = quick_settings();
  settings.scratch_bytes = 64 << 10;
  Problem tall = small_problem();
  tall.rows = 5000;
  const Report report = Tuner(device, database, settings).tune(tall);
  EXPECT_GT(report.timed_rows, 0);
  EXPECT_LE(report.timed_rows * tall.columns * 4 * 2, settings.scratch_bytes);
  for (const Measurement& measurement : database.measurements(report.key)) {
    EXPECT_EQ(measurement.rows, report.timed_rows);
    EXPECT_EQ(measurement.bytes, report.timed_rows * tall.columns * 4 * 2)
        << "GB/s are those of the timed rows";
  }
}

/// 513 rows and 1024 have one answer, and times of the two are nothing to hold against each other.
TEST_F(TunerTest, ASearchComparesTimesOfItsOwnRowsAlone) {
  cache::Cache database = open();
  generator::Problem problem = small_problem();
  std::set<std::string> of_first;
  TimedDevice device([&](const std::string& config) {
    if (problem.rows == 40) of_first.insert(config);
    return static_cast<double>(problem.rows) * (of_first.contains(config) ? 1.2 : 1.);
  });
  tuner::Settings settings = quick_settings();
  static_cast<void>(Tuner(device, database, settings).tune(problem));
  settings.search.strategy = tuner::Strategy::exhaustive;
  settings.search.most_configs = 8;
  problem.rows = 64;
  const Report most = Tuner(device, database, settings).tune(problem);
  EXPECT_EQ(most.timed_rows, 64);
  EXPECT_FALSE(of_first.contains(generator::to_text(most.winner)));
  // Those of fewer rows would not be heard.
  settings.search.most_configs = 12;
  problem.rows = 40;
  const auto of_few_rows = [&] {
    return std::ranges::count_if(database.measurements(most.key),
                                 [](const Measurement& m) { return m.rows == 40; });
  };
  const auto before = of_few_rows();
  EXPECT_EQ(Tuner(device, database, settings).tune(problem).timed_rows, 64);
  EXPECT_EQ(of_few_rows(), before);
}

/// What was left behind before the machine became slower had the smaller median then.
TEST_F(TunerTest, OnlyTheLastRoundDecides) {
  cache::Cache database = open();
  std::map<std::string, int> order;
  double drift = 1;
  TimedDevice device([&](const std::string& config) {
    return 1000 * drift *
           (1 + 0.004 * order.try_emplace(config, static_cast<int>(order.size())).first->second);
  });
  tuner::Settings settings;
  settings.scratch_bytes = std::int64_t{1} << 20;
  settings.search.structures = 10;
  settings.search.refined = 0;
  const tuner::Hooks hooks{.progress = [&](const tuner::Progress& progress) {
    if (progress.stage == "final" && progress.done == progress.total) drift = 1.02;
  }};
  const Report report = Tuner(device, database, settings).tune(small_problem(), hooks);
  EXPECT_EQ(order.at(generator::to_text(report.winner)), 0);
}

/// One on which everything takes twice as long in some turns, and so does its reference.
class ShakenGpu : public TimedDevice {
 public:
  ShakenGpu()
      : TimedDevice([this](const std::string&) { return slow_turns.contains(turn) ? 2000 : 1000; }),
        model_(DeviceDecorator::model()) {
    model_.capability = 90;
    model_.l2_bytes = 1 << 16;
  }
  const runtime::Model& model() const override { return model_; }

  int turn = 0;
  std::set<int> slow_turns;

 private:
  runtime::Model model_;
};

class ShakenSearch : public TunerTest {
 protected:
  /// One turn in the semifinal, and as many in the final as make that number.
  Report search(ShakenGpu& device, int turns) {
    cache::Cache database = open();
    tuner::Settings settings = quick_settings();
    settings.search.final_samples = 3 * turns;
    const Report report =
        Tuner(device, database, settings).tune(small_problem(), {.progress = [&](const tuner::Progress& now) {
                                                 if (now.stage == "semifinal" || now.stage == "final")
                                                   ++device.turn;
                                               }});
    winner = tuner::Tuner(device, database, settings).known_winner(small_problem())->winner.measurement;
    return report;
  }

  Measurement winner;
};

TEST_F(ShakenSearch, TakesDisturbedTurnsAgain) {
  ShakenGpu device;
  device.slow_turns = {2};
  const Report report = search(device, 5);
  EXPECT_EQ(device.turn, 6);
  EXPECT_THAT(winner.samples_us, testing::ElementsAreArray(std::vector<float>(15, 1000)));
  EXPECT_THAT(report.reason, testing::Not(testing::HasSubstr("doubt")));
}

TEST_F(ShakenSearch, SaysWhereTooFewTurnsWereSteady) {
  ShakenGpu device;
  device.slow_turns = {1};
  const Report report = search(device, 2);
  EXPECT_EQ(winner.samples_us.size(), 9) << "those of the disturbed turn, too";
  EXPECT_THAT(report.reason,
              testing::HasSubstr(
                  "the measurement was disturbed: a kernel that never changes was more than 5% slower in "
                  "1 of 2 turns"));
}

TEST_F(TunerTest, FastKernelsHaveMoreSamples) {
  cache::Cache database = open();
  TimedDevice device([](const std::string&) { return 40.; });
  const Report report = Tuner(device, database, quick_settings()).tune(small_problem());
  std::multiset<std::size_t> samples;
  for (const Measurement& measurement : database.measurements(report.key))
    samples.insert(measurement.samples_us.size());
  EXPECT_THAT(samples, testing::ElementsAre(10, 10, 10, 10, 15, 30, 30)) << "five times as many";
}

/// However short the budget, there is a winner, with a turn of its own.
TEST_F(TunerTest, OnceTheBudgetIsOverThereIsNotAnotherTurn) {
  cache::Cache database = open();
  TimedDevice device([](const std::string&) { return 1000.; });
  tuner::Settings settings = quick_settings();
  settings.budget_s = 1e-6;
  settings.search.most_configs = 0;
  settings.search.structures = 4;
  settings.search.modifiers = 3;
  settings.search.semifinal_samples = 6;
  settings.search.final_samples = 9;
  const Report report = Tuner(device, database, settings).tune(small_problem());
  EXPECT_EQ(report.tried, 1);
  EXPECT_THAT(report.reason, testing::HasSubstr("; only 1 of 4 configs were ready in time"))
      << "of the screening; the refining had no time at all";
  const auto known = Tuner(device, database, settings).known_winner(small_problem());
  ASSERT_TRUE(tuner::has_final(known));
  EXPECT_FALSE(tuner::is_finished(known));
  EXPECT_EQ(known->winner.measurement.samples_us.size(), 3);
}

TEST_F(TunerTest, ProgressTellsTheFastestSoFar) {
  cache::Cache database = open();
  std::map<std::string, double> times;
  TimedDevice device([&](const std::string& config) {
    return times.try_emplace(config, 1000 + 100 * ((times.size() + 2) % 4)).first->second;
  });
  std::vector<double> told;
  static_cast<void>(Tuner(device, database, quick_settings())
                        .tune(small_problem(), {.progress = [&](const tuner::Progress& now) {
                                if (now.stage == "screening") told.push_back(now.best_us);
                              }}));
  EXPECT_THAT(told, testing::ElementsAre(1200, 1200, 1000, 1000));
}

TEST_F(TunerTest, WhatTheFinalsBuiltIsKept) {
  cache::Cache database = open();
  FaultyDevice device;
  const Report report = Tuner(device, database, quick_settings()).tune(small_problem());
  FaultyDevice other;
  static_cast<void>(tuner::Kernel(other, tuner::build(other, database, small_problem(), report.winner)));
  EXPECT_EQ(other.compiled(), 0);
}

/// As many as are looked at were; the others are left for who asks for more.
TEST_F(TunerTest, ASearchThatFindsNothingNewTakesNoTurns) {
  cache::Cache database = open();
  tuner::Settings settings = quick_settings();
  settings.search.strategy = tuner::Strategy::exhaustive;
  FaultyDevice device;
  const Report first = Tuner(device, database, settings).tune(small_problem());
  const std::size_t before = database.measurements(first.key).size();
  const Report second = Tuner(device, database, settings).tune(small_problem());
  EXPECT_EQ(second.winner, first.winner);
  EXPECT_EQ(database.measurements(first.key).size(), before);
}

/// Neither a check, which times winners alone, nor what older templates were.
TEST_F(TunerTest, ChecksAndOtherTemplatesAreNotKnown) {
  cache::Cache database = open();
  FaultyDevice device;
  const Report first = Tuner(device, database, quick_settings()).tune(small_problem());
  cache::Cache other = cache::Cache::in_memory();
  constexpr double impossible_us = 0.001;  // what counts of these, wins
  for (Measurement measurement : database.measurements(first.key)) {
    measurement.samples_us.assign(measurement.samples_us.size(), static_cast<float>(impossible_us));
    measurement.median_us = impossible_us;
    if (measurement.config == generator::to_text(first.winner)) {
      measurement.stage = cache::stage_of_checks;
    } else {
      measurement.stage = cache::stage_of_finals;
      measurement.template_digest = "0123";
    }
    other.add(measurement);
  }
  const Report report = Tuner(device, other, quick_settings()).tune(small_problem());
  EXPECT_EQ(report.known, 0);
  EXPECT_EQ(report.tried, 4);
  EXPECT_GT(report.median_us, 10 * impossible_us);
}

TEST_F(TunerTest, MemoryWasShortWhereTwiceTheRowsFitNow) {
  cache::Cache database = open();
  FaultyDevice device;
  Problem tall = small_problem();
  tall.rows = 5000;
  tuner::Settings settings = quick_settings();
  settings.scratch_bytes = std::int64_t{1} << 20;
  const std::int64_t rows = tuner::rows_that_fit(tall, settings.scratch_bytes);
  ASSERT_GT(rows, 100);
  ASSERT_LT(rows, 2500);
  const auto is_short = [&](std::int64_t measured) {
    return tuner::is_of_short_memory(device, settings, tall, {.rows = measured});
  };
  EXPECT_TRUE(is_short((rows - 1) / 2));
  EXPECT_FALSE(is_short((rows + 1) / 2)) << "though the problem has more";
  tall.rows = 100;
  EXPECT_TRUE(is_short(49));
  EXPECT_FALSE(is_short(50));
}

/// Those of the most rows that could be timed then.
TEST_F(TunerTest, AFinalOfTooFewRowsDecidesNothing) {
  cache::Cache database = open();
  FaultyDevice device;
  Problem tall = small_problem();
  tall.rows = 1000;
  tuner::Settings settings = quick_settings();
  settings.scratch_bytes = 64 << 10;
  const Report few = Tuner(device, database, settings).tune(tall);
  ASSERT_LT(2 * few.timed_rows, tall.rows);
  settings.scratch_bytes = std::int64_t{1} << 20;
  const Report all = Tuner(device, database, settings).tune(tall);
  EXPECT_EQ(all.timed_rows, tall.rows);
  EXPECT_TRUE(is_finished(Tuner(device, database, settings).known_winner(tall)));
}

TEST_F(TunerTest, ABucketOfRowsSharesItsAnswer) {
  cache::Cache database = open();
  FaultyDevice device;
  Tuner tuner(device, database, quick_settings());
  const Report report = tuner.tune(small_problem());
  Problem other = small_problem();
  other.rows = 64;
  ASSERT_TRUE(tuner.known_winner(other));
  EXPECT_EQ(tuner.known_winner(other)->winner.config, report.winner);
  other.rows = 65;
  EXPECT_FALSE(tuner.known_winner(other));
}

/// Times of other rows are not compared, but there is nothing left to measure either.
TEST_F(TunerTest, WhatFewerRowsOfTheBucketWereTimedOfIsKnown) {
  cache::Cache database = open();
  FaultyDevice device;
  Problem fewer = small_problem();
  fewer.rows = 63;
  const Report first = Tuner(device, database, quick_settings()).tune(fewer);
  ASSERT_EQ(first.timed_rows, 63);
  ASSERT_GT(first.tried, 0);
  Problem more = fewer;
  more.rows = 64;
  const Report second = Tuner(device, database, quick_settings()).tune(more);
  EXPECT_EQ(second.timed_rows, 63);
  EXPECT_EQ(second.tried, first.tried);
  EXPECT_EQ(second.known, first.tried);
}

TEST_F(TunerTest, ACeilingIsTimedWithoutASearchWhereAnotherTunerSearchedIt) {
  using generator::Operation;
  cache::Cache database = open();
  FaultyDevice device, other;
  Tuner first(device, database, quick_settings()), second(other, database, quick_settings());
  EXPECT_THROW(static_cast<void>(second.time_ceiling(Operation::copy)), Error) << "nothing was searched";
  ASSERT_TRUE(first.search_ceiling(Operation::copy));
  const cache::Key key = first.key(first.ceiling_problem(Operation::copy));
  const std::size_t measured = database.measurements(key).size();
  EXPECT_GT(measured, 0U);
  EXPECT_GT(second.time_ceiling(Operation::copy), 0);
  EXPECT_EQ(database.measurements(key).size(), measured);
}

void expect_same(const generator::Trial& a, const generator::Trial& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_EQ(a.tensors[i].initial, b.tensors[i].initial) << a.tensors[i].name;
    EXPECT_EQ(a.tensors[i].bytes, b.tensors[i].bytes) << a.tensors[i].name;
  }
}

TEST(TrialInputs, DependOnTheSeedAlone) {
  const Problem problem{.operation = generator::Operation::cross_entropy,
                        .dtype = DType::bf16,
                        .gradient = true,
                        .rows = 50,
                        .columns = 77};
  expect_same(generator::timing_trial(problem, 5), generator::timing_trial(problem, 5));
  const auto trials = generator::verification_trials(problem, 5),
             again = generator::verification_trials(problem, 5);
  const auto others = generator::verification_trials(problem, 6);
  ASSERT_EQ(trials.size(), again.size());
  ASSERT_EQ(trials.size(), others.size());
  for (std::size_t i = 0; i < trials.size(); ++i) {
    expect_same(trials[i], again[i]);
    EXPECT_NE(trials[i].tensors[0].initial, others[i].tensors[0].initial);
  }
}

}  // namespace
}  // namespace ce::test
