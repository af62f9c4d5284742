// Policies: what a call does for a problem that the database has no winner for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "cache/tuning_lock.hpp"
#include "ce/error.hpp"
#include "tests/ce/child.hpp"
#include "tests/ce/fixture.hpp"
#include "tests/environment.hpp"
#include "tests/until.hpp"

namespace ce::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class PolicyTest : public ContextTest {
 protected:
  /// The key of such a problem, from a database of its own.
  [[nodiscard]] std::string key_of(std::int64_t columns) const {
    ContextOptions elsewhere = options(Policy::lookup);
    elsewhere.database = folder() / "other.db";
    Context context(elsewhere);
    return softmax(context, columns).key;
  }

  /// Calls until the choice stands.
  static Choice settled(Context& context, std::int64_t columns) {
    Choice choice;
    static_cast<void>(ce::test::until(
        [&] {
          choice = softmax(context, columns);
          return !choice.provisional;
        },
        std::chrono::minutes(3)));
    return choice;
  }
};

TEST_F(PolicyTest, WhatTheSiteKnowsIsNotTuned) {
  ContextOptions at_the_site = options(Policy::tune);
  at_the_site.database = folder() / "site.db";
  const Choice tuned = [&] {
    Context tuning(at_the_site);
    return softmax(tuning, 64);
  }();
  const ce::test::ScopedEnvironment site("CE_SITE_DB", (folder() / "site.db").string());
  {
    Context frozen(options(Policy::frozen));
    const Choice choice = softmax(frozen, 64);
    EXPECT_EQ(choice.origin, Origin::database);
    EXPECT_EQ(choice.config, tuned.config);
    EXPECT_THAT(choice.reason, HasSubstr("site layer"));
    EXPECT_EQ(frozen.compiled(), 0) << "the site's compiled kernels are of this user";
    EXPECT_THROW(softmax(frozen, 128), NotTuned);
  }
  const LogLines log;
  Context tuning(options(Policy::tune));
  EXPECT_EQ(softmax(tuning, 64).origin, Origin::database);
  EXPECT_EQ(tuning.compiled(), 0) << "its own binaries are";
  EXPECT_EQ(log.count(LogLevel::info, "tuned "), 0);
}

TEST_F(PolicyTest, ALogSinkCannotWaitForItsOwnTuning) {
  Context context(options(Policy::tune));
  softmax(context, 128);
  std::vector<std::string> told;
  set_log_sink([&](LogLevel, std::string_view) {
    EXPECT_EQ(softmax(context, 128).origin, Origin::tuned);
    try {
      softmax(context, 64);
    } catch (const Unsupported& error) {
      told.emplace_back(error.what());
    }
  });
  softmax(context, 64);
  set_log_sink({});
  ASSERT_FALSE(told.empty());
  EXPECT_THAT(told.front(), HasSubstr("chooses a kernel, here for softmax f32"));
}

TEST_F(PolicyTest, FrozenNamesWhatIsMissingAndTakesExactWinners) {
  const LogLines log;
  Context frozen(options(Policy::frozen));
  std::vector<std::string> missing;
  for (const std::int64_t columns : {64, 128}) {
    SoftmaxCall call(frozen, {.name = "", .columns = columns}, 1);
    for (int again = 0; again < 2; ++again) {
      try {
        frozen.run(Softmax{}, call.tensors());
        ADD_FAILURE() << "ran without a winner";
      } catch (const NotTuned& error) {
        EXPECT_EQ(error.kind(), ErrorKind::not_found);
        missing = error.problems();
        for (const std::string& problem : missing) EXPECT_THAT(error.what(), HasSubstr(problem));
      }
    }
    EXPECT_THROW(static_cast<void>(frozen.prepare(Softmax{}, call.tensors())), NotTuned);
  }
  ASSERT_THAT(missing, ElementsAre(HasSubstr("softmax f32 12 x 64"), HasSubstr("softmax f32 12 x 128")));
  EXPECT_EQ(frozen.compiled(), 0);

  Context tuning(options(Policy::tune));
  const Choice tuned = softmax(tuning, 64);
  EXPECT_THAT(missing.front(), HasSubstr(tuned.key));
  const Choice choice = softmax(frozen, 64);
  EXPECT_EQ(choice.origin, Origin::database);
  EXPECT_EQ(choice.config, tuned.config);
  EXPECT_FALSE(choice.provisional);
  EXPECT_EQ(frozen.compiled(), 0);
  EXPECT_THROW(softmax(frozen, 128), NotTuned);
  EXPECT_EQ(log.count(LogLevel::info, "tuned "), 1);
}

TEST_F(PolicyTest, BackgroundGoesOnWithTheDefaultUntilTheWinnerIsThere) {
  const LogLines log;
  Context context(options(Policy::background));
  const Choice first = softmax(context, 64);
  EXPECT_EQ(first.origin, Origin::fallback);
  EXPECT_TRUE(first.provisional);
  EXPECT_THAT(first.reason, HasSubstr("background"));
  const Choice tuned = settled(context, 64);
  EXPECT_EQ(tuned.origin, Origin::tuned);
  EXPECT_FALSE(tuned.provisional);
  EXPECT_EQ(log.count(LogLevel::info, "tuned softmax f32 12 x 64"), 1);
  Context next(options(Policy::background));
  EXPECT_EQ(softmax(next, 64).origin, Origin::database);
}

TEST_F(PolicyTest, BackgroundStopsWithItsContext) {
  const LogLines log;
  {
    Context context(options(Policy::background));
    for (const std::int64_t columns : {64, 128, 256}) EXPECT_TRUE(softmax(context, columns).provisional);
  }
  EXPECT_LE(log.count(LogLevel::info, "tuned "), 1);
  EXPECT_EQ(log.count(LogLevel::warning, ""), 0);
}

TEST_F(PolicyTest, BackgroundStopsOnRequest) {
  const LogLines log;
  Context context(options(Policy::background));
  context.stop_background();
  for (int call = 0; call < 3; ++call) {
    const Choice choice = softmax(context, 64);
    EXPECT_EQ(choice.origin, Origin::fallback);
    EXPECT_FALSE(choice.provisional) << "nothing else will come";
  }
  EXPECT_EQ(log.count(LogLevel::info, "tuned "), 0);
}

TEST_F(PolicyTest, BackgroundOfTheDefaultContextEndsWithTheProgram) {
  const ScopedEnvironment background("CE_POLICY", "background");
  const ScopedEnvironment database("CE_DB", file().c_str());
  const ScopedEnvironment device("CE_DEVICE", tested_device().c_str());
  const ChildResult result = run_in_a_child({});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_EQ(result.output.substr(0, 9), "fallback ");
}

TEST_F(PolicyTest, TuneWaitsForAnotherProcessOnlySoLong) {
  const LogLines log;
  const std::string key = key_of(64);
  ContextOptions impatient = options(Policy::tune);
  impatient.tuning_seconds = 0.7;  // a busy machine delays no other call by three times as much
  Context context(impatient);
  {
    const auto lock = cache::TuningLock::take(cache::tuning_lock_file(file(), key), file());
    ASSERT_TRUE(lock);
    for (int call = 0; call < 3; ++call) {
      const auto begin = std::chrono::steady_clock::now();
      const Choice choice = softmax(context, 64);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      EXPECT_EQ(took.count() >= 3 * *impatient.tuning_seconds, call == 0) << "the first call alone waits";
      EXPECT_EQ(choice.origin, Origin::fallback);
      EXPECT_TRUE(choice.provisional);
      EXPECT_THAT(choice.reason, HasSubstr("another thread or process"));
    }
    EXPECT_EQ(softmax(context, 128).origin, Origin::tuned) << "another problem is in nobody's way";
  }
  EXPECT_EQ(settled(context, 64).origin, Origin::tuned);
  EXPECT_EQ(log.count(LogLevel::info, "tuned softmax f32 12 x 64"), 1);
}

TEST_F(PolicyTest, KnownProblemsDoNotWaitForUnknownOnes) {
  const std::string key = key_of(128);
  std::string known;
  {
    Context context(options(Policy::tune));
    known = softmax(context, 64).config;
  }
  ContextOptions patient = options(Policy::tune);
  patient.tuning_seconds = 0;
  Context context(patient);
  auto lock = cache::TuningLock::take(cache::tuning_lock_file(file(), key), file());
  ASSERT_TRUE(lock);
  Choice waited;
  std::jthread thread([&] { waited = softmax(context, 128); });
  const Choice choice = softmax(context, 64);
  EXPECT_EQ(choice.origin, Origin::database);
  EXPECT_EQ(choice.config, known);
  lock.reset();
  thread.join();
  EXPECT_EQ(waited.origin, Origin::tuned);
}

TEST_F(PolicyTest, TheEnvironmentChoosesWhereTheProgramDoesNot) {
  ContextOptions unset = options(Policy::tune);
  unset.policy.reset();
  const ScopedEnvironment frozen("CE_POLICY", "frozen");
  Context by_environment(unset);
  EXPECT_THROW(softmax(by_environment, 64), NotTuned);
  Context by_program(options(Policy::lookup));
  EXPECT_EQ(softmax(by_program, 64).origin, Origin::fallback);

  const ScopedEnvironment nonsense("CE_POLICY", "hope");
  EXPECT_NO_THROW(Context(options(Policy::lookup)));
  try {
    Context context(unset);
    ADD_FAILURE() << "hope is no policy";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "CE_POLICY");
    EXPECT_EQ(error.value(), "\"hope\"");
    EXPECT_EQ(error.expected(), "tune, lookup, frozen or background");
  }
}

TEST_F(PolicyTest, OptionsMustNotBeNegative) {
  const auto refused = [this](const char* name, auto member) {
    ContextOptions wrong = options(Policy::tune);
    wrong.*member = -1;
    try {
      Context context(wrong);
      ADD_FAILURE() << name << " of -1 was taken";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), name);
      EXPECT_EQ(error.value(), "-1");
    }
  };
  refused("tuning_seconds", &ContextOptions::tuning_seconds);
  refused("scratch_bytes", &ContextOptions::scratch_bytes);
  refused("capture_bytes", &ContextOptions::capture_bytes);
}

}  // namespace
}  // namespace ce::test
