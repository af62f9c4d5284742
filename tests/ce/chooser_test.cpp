// What the Chooser does by its policy, while the stream is captured, and while others tune.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "base/time.hpp"
#include "ce/error.hpp"
#include "ce/stats.hpp"
#include "tests/ce/chooser_fixture.hpp"
#include "tests/ce/log_lines.hpp"
#include "tuner/serving.hpp"

namespace ce::test {
namespace {

using generator::Problem;
using testing::HasSubstr;

TEST_F(ChooserTest, NothingIsTunedWhileTheStreamIsCaptured) {
  for (const Policy policy : {Policy::tune, Policy::background}) {
    const LogLines log;
    cache::Cache empty = cache::Cache::in_memory();
    Chooser chooser(device, empty, quick_settings(), policy);
    device.captures = true;
    const int before = device.compiled;
    for (int call = 0; call < 3; ++call) {
      const Choice choice = choose(chooser);
      EXPECT_EQ(choice.origin, Origin::fallback);
      EXPECT_TRUE(choice.provisional);
      EXPECT_THAT(choice.reason, HasSubstr(policy == Policy::tune ? "captured" : "background"));
    }
    // What was queued would begin meanwhile.
    if (policy == Policy::background) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_EQ(device.compiled, before + 1) << "the default alone";
    EXPECT_EQ(log.count(LogLevel::info, "tuned "), 0);
    device.captures = false;
    EXPECT_EQ(settled(chooser).origin, Origin::tuned);
    device.captures = true;
    EXPECT_EQ(choose(chooser).origin, Origin::tuned);
    device.captures = false;
  }
}

TEST_F(ChooserTest, FrozenIsTheSameWhileTheStreamIsCaptured) {
  Chooser frozen(device, database, quick_settings(), Policy::frozen);
  device.captures = true;
  EXPECT_THROW(choose(frozen), NotTuned);
  device.captures = false;
  Chooser tuning(device, database, quick_settings(), Policy::tune);
  const Choice tuned = choose(tuning);
  device.captures = true;
  const Choice choice = choose(frozen);
  EXPECT_EQ(choice.origin, Origin::database);
  EXPECT_EQ(choice.config, tuned.config);
  EXPECT_FALSE(choice.provisional);
}

TEST_F(ChooserTest, AFailureInTheBackgroundIsSaidOnceAndAFallbackStays) {
  const LogLines log;
  device.fails = true;
  Chooser chooser(device, database, quick_settings(), Policy::background);
  const Choice first = choose(chooser);
  EXPECT_TRUE(first.provisional);
  const Choice last = settled(chooser);
  EXPECT_EQ(last.origin, Origin::fallback);
  EXPECT_NE(last.config, first.config) << "which is in quarantine: it could not be timed";
  EXPECT_THAT(last.reason, HasSubstr("failed"));
  const int compiled = device.compiled;
  for (int call = 0; call < 3; ++call) EXPECT_EQ(choose(chooser).config, last.config);
  EXPECT_EQ(device.compiled, compiled) << "tried again";
  EXPECT_EQ(log.count(LogLevel::warning, "background"), 1);
}

TEST_F(ChooserTest, AFallbackStaysWhenTheBackgroundHasEnded) {
  const LogLines log;
  Chooser chooser(device, database, quick_settings(), Policy::background);
  device.captures = true;  // so that it is not queued
  const Choice before = choose(chooser);
  EXPECT_TRUE(before.provisional);
  device.captures = false;
  chooser.stop_background();
  EXPECT_EQ(choose(chooser).config, before.config);
  const Problem other = wider(2 * small_problem().columns);
  choose(chooser, other);
  const int compiled = device.compiled;
  for (const Problem& problem : {small_problem(), other}) {
    const Choice after = choose(chooser, problem);
    EXPECT_FALSE(after.provisional);
    EXPECT_THAT(after.reason, HasSubstr("tuning in the background has stopped"));
  }
  EXPECT_EQ(device.compiled, compiled);
  EXPECT_EQ(log.count(LogLevel::info, "tuned "), 0);
}

TEST_F(ChooserTest, WhoLooksUpDoesNotWaitForWhoTunes) {
  Chooser other(device, database, quick_settings(), Policy::tune);
  const Choice known = choose(other);
  Chooser chooser(device, database, quick_settings(), Policy::tune);
  device.compilers.close();
  Choice tuned;
  std::jthread thread([&] { tuned = choose(chooser, wider(64)); });
  device.compilers.wait();
  const Choice choice = choose(chooser);
  EXPECT_EQ(choice.origin, Origin::database);
  EXPECT_EQ(choice.config, known.config);
  device.compilers.open();
  thread.join();
  EXPECT_EQ(tuned.origin, Origin::tuned);
}

/// Ranks agree on a config while a thread of this one is still searching.
TEST_F(ChooserTest, WhatASearchFindsGivesWayToWhatWasToldMeanwhile) {
  const std::vector<generator::Config> ranked = tuner::safe_defaults(small_problem(), device.model());
  for (const std::size_t rank : {0, 1}) {  // the search finds one of them at most
    const std::string told = generator::to_text(ranked.at(rank));
    cache::Cache own = cache::Cache::in_memory();
    Chooser chooser(device, own, quick_settings(), Policy::tune);
    device.timers.close();
    Choice tuned;
    std::jthread thread([&] { tuned = choose(chooser); });
    device.timers.wait();
    chooser.use(tuner::Tuner(device, own, quick_settings()).key(small_problem()).id(), told);
    device.timers.open();
    thread.join();
    EXPECT_EQ(tuned.origin, Origin::tuned);
    EXPECT_EQ(tuned.provisional, tuned.config != told);
    EXPECT_EQ(choose(chooser).config, told);
    EXPECT_FALSE(choose(chooser).provisional);
  }
}

/// What was told is compiled and verified once that is possible; until then the winner of the database serves.
TEST_F(ChooserTest, WhatWasToldRunsAfterACapture) {
  Chooser other(device, database, quick_settings(), Policy::tune);
  const Choice winner = choose(other);
  std::string told;  // a config that the search has not verified
  for (const generator::Config& config : tuner::safe_defaults(small_problem(), device.model())) {
    const auto built = tuner::build(device, database, small_problem(), config);
    if (database.is_verified(built.compile_key(), tuner::machine_of(device))) continue;
    told = generator::to_text(config);
    break;
  }
  ASSERT_NE(told, "");
  const cache::Key key = tuner::Tuner(device, database, quick_settings()).key(small_problem());
  for (const Policy policy : {Policy::frozen, Policy::lookup, Policy::tune}) {
    Chooser chooser(device, database, quick_settings(), policy);
    chooser.use(key.id(), told);
    if (policy == Policy::frozen) {
      device.captures = true;
      EXPECT_EQ(choose(chooser).config, winner.config);
      EXPECT_EQ(&chooser.choose(small_problem(), nullptr), &chooser.choose(small_problem(), nullptr));
      device.captures = false;
    }
    EXPECT_EQ(choose(chooser).config, told) << name(policy);
  }
}

TEST_F(ChooserTest, AProcessTunesOneProblemAtATime) {
  Chooser chooser(device, database, quick_settings(), Policy::tune);
  const std::vector<Problem> problems{small_problem(), wider(64), wider(128)};
  device.compilers.close();
  std::vector<std::jthread> threads;
  for (const Problem& problem : problems) threads.emplace_back([&] { choose(chooser, problem); });
  device.compilers.wait();
  int locked = 0;
  const tuner::Tuner tuner(device, database, quick_settings());
  for (const Problem& problem : problems)
    if (!database.try_tuning_lock(tuner.key(problem))) ++locked;
  EXPECT_EQ(locked, 1);
  device.compilers.open();
  threads.clear();
  for (const Problem& problem : problems) EXPECT_EQ(choose(chooser, problem).origin, Origin::tuned);
}

TEST_F(ChooserTest, WaitsForTheSearchOfAnotherThreadOrProcessThreeBudgetsAtMost) {
  tuner::Settings settings = quick_settings();
  settings.budget_s = 0.07;
  const LogLines log;
  // With a connection of its own, as another process has it.
  cache::Cache its_database = open();
  Chooser chooser(device, database, settings, Policy::tune);
  Chooser other(device, its_database, settings, Policy::tune);
  const Stats before = stats();
  device.timers.close();
  Choice tuned;
  std::jthread thread([&] { tuned = choose(chooser); });
  device.timers.wait();
  for (Chooser* waiting : {&chooser, &other}) {
    const Choice choice = choose(*waiting);
    EXPECT_EQ(choice.origin, Origin::fallback);
    EXPECT_TRUE(choice.provisional);
    EXPECT_THAT(choice.reason, HasSubstr("another thread or process is tuning the problem"));
  }
  device.timers.open();
  thread.join();
  EXPECT_EQ(tuned.origin, Origin::tuned);
  EXPECT_EQ(stats().waited - before.waited, 2);
  EXPECT_EQ(stats().fallback - before.fallback, 2);
  EXPECT_EQ(stats().tuned - before.tuned, 1);
  EXPECT_EQ(settled(chooser).config, tuned.config);
  const Choice found = settled(other);
  EXPECT_EQ(found.origin, Origin::database);
  EXPECT_EQ(found.config, tuned.config);
  EXPECT_EQ(log.count(LogLevel::info, "tuned "), 1);
}

TEST_F(ChooserTest, WaitsItsTurnHoweverLongTheSearchOfAnotherProblemTakes) {
  tuner::Settings settings = quick_settings();
  settings.budget_s = 0.05;
  Chooser chooser(device, database, settings, Policy::tune);
  device.timers.close();
  std::jthread first([&] { choose(chooser, wider(64)); });
  device.timers.wait();
  Choice tuned;
  std::atomic<pid_t> number = 0;
  std::atomic<bool> done = false;
  std::jthread second([&] {
    number = ::gettid();
    tuned = choose(chooser);
    done = true;
  });
  ASSERT_TRUE(until([&] { return number != 0 && waits(number); })) << "for its turn";
  std::this_thread::sleep_for(4 * std::chrono::duration<double>(settings.budget_s));
  EXPECT_FALSE(done);
  device.timers.open();
  second.join();
  EXPECT_EQ(tuned.origin, Origin::tuned);
}

/// All ranks of a job are to run the same kernel, also one that begins after the search of the first.
TEST_F(ChooserTest, ASearchThatWasCutShortIsGoneOnWithOnlyLater) {
  Chooser first(device, database, quick_settings(), Policy::tune);
  const Choice winner = choose(first);
  const cache::Key key = tuner::Tuner(device, database, quick_settings()).key(small_problem());
  for (const int minutes : {0, 9, 11}) {
    const std::time_t then = std::time(nullptr) - 60 * minutes;
    cache::Cache later = cache::Cache::in_memory();
    for (cache::Measurement measurement : database.measurements(key)) {
      if (measurement.stage > 0)
        measurement.environment["cut_short"] = "only 1 of 4 configs were ready in time";
      measurement.created_at = utc_text({.tv_sec = then, .tv_nsec = 0});
      later.add(measurement);
    }
    Chooser chooser(device, later, quick_settings(), Policy::tune);
    const Choice choice = choose(chooser);
    EXPECT_EQ(choice.origin, minutes < 10 ? Origin::database : Origin::tuned) << minutes << " minutes later";
    if (minutes < 10) {
      EXPECT_EQ(choice.config, winner.config);
    }
  }
}

TEST_F(ChooserTest, AnInterruptedTuningIsFinishedByTheNext) {
  {
    Chooser chooser(device, database, quick_settings(), Policy::background);
    EXPECT_TRUE(choose(chooser).provisional);
    const tuner::Tuner tuner(device, database, quick_settings());
    ASSERT_TRUE(until([&] { return !database.measurements(tuner.key(small_problem())).empty(); }));
  }
  // Whatever was measured by then serves where nothing may be tuned, and is no winner.
  const tuner::Tuner tuner(device, database, quick_settings());
  const bool ended = tuner.known_winner(small_problem())->winner.measurement.stage > 0;
  Chooser lookup(device, database, quick_settings(), Policy::lookup);
  EXPECT_EQ(choose(lookup).origin, Origin::database);
  Chooser frozen(device, database, quick_settings(), Policy::frozen);
  if (!ended) {
    EXPECT_THROW(choose(frozen), NotTuned);
  }
  Chooser chooser(device, database, quick_settings(), Policy::tune);
  EXPECT_EQ(choose(chooser).origin, ended ? Origin::database : Origin::tuned);
  EXPECT_EQ(choose(frozen).origin, Origin::database);
}

}  // namespace
}  // namespace ce::test
