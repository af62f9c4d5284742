// The Tuner from end to end on the host device, with a database of its own.
#include "tuner/tuner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "ce/base/built_version.hpp"
#include "ce/base/error.hpp"
#include "generator/trial.hpp"
#include "tests/tuner/fixture.hpp"
#include "tuner/verify.hpp"

namespace ce::test {
namespace {

using cache::Measurement;
using cache::Outcome;
using generator::Problem;
using tuner::Report;
using tuner::Tuner;

TEST_F(TunerTest, TunesOnceAndRemembersWithEvidence) {
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

  const generator::Config winner = generator::parse_config(report.winner);
  tuner::Verifier verifier(device, small_problem(), 99);
  EXPECT_EQ(verifier.mismatch(tuner::build(device, database, small_problem(), winner).load(device)),
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
    EXPECT_EQ(measurement.evidence.count("compiler"), 1);
    EXPECT_EQ(measurement.evidence.count("host"), 1);
    EXPECT_EQ(measurement.evidence.at("ce"), built_version());
    EXPECT_EQ(measurement.evidence.count("reference_us"), 0) << "of GPUs only";
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
  EXPECT_FALSE(of_first.contains(most.winner));
  // Those of fewer rows would not be heard.
  settings.search.most_configs = 12;
  problem.rows = 40;
  EXPECT_EQ(Tuner(device, database, settings).tune(problem).timed_rows, 64);
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
  EXPECT_EQ(order.at(report.winner), 0);
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
