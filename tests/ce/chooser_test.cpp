// The Chooser on a device that captures, fails and takes its time when it is told to.
#include "ce/chooser.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "ce/base/error.hpp"
#include "generator/source.hpp"
#include "generator/variant.hpp"
#include "runtime/host/device.hpp"
#include "tests/ce/log_lines.hpp"
#include "tests/environment.hpp"
#include "tests/tuner/fixture.hpp"
#include "tests/until.hpp"
#include "tuner/decide.hpp"
#include "tuner/ranking.hpp"
#include "tuner/serving.hpp"
#include "tuner/verify.hpp"

namespace ce::test {
namespace {

using generator::Config;
using generator::Problem;
using testing::HasSubstr;

/// Who comes while it is closed waits until it opens.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++came_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !closed_; });
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    came_ = 0;
  }
  /// For somebody to come.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return came_ > 0; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    closed_ = false;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  int came_ = 0;
};

/// One whose kernels keep values in local memory.
class SpillingModule : public runtime::Module {
 public:
  explicit SpillingModule(std::unique_ptr<Module> inner) : inner_(std::move(inner)) {}
  runtime::Function function(std::string_view entry) const override { return inner_->function(entry); }
  runtime::Resources resources(runtime::Function function) const override {
    runtime::Resources found = inner_->resources(function);
    found.local_bytes = 32;
    return found;
  }

 private:
  std::unique_ptr<Module> inner_;
};

class ObedientDevice : public DeviceDecorator {
 public:
  /// \param suffix  of the model's name
  explicit ObedientDevice(const std::string& suffix = "")
      : DeviceDecorator(runtime::open_host_device()), model_(DeviceDecorator::model()) {
    model_.name += suffix;
  }

  const runtime::Model& model() const override { return model_; }
  bool capturing(Stream) const override { return captures; }
  int parallel_compiles() const override { return 1; }
  runtime::Binary compile(const runtime::CompileRequest& request) override {
    compilers.pass();
    ++compiled;
    if (!refused.empty() && request.text.find(refused) != std::string::npos)
      throw CompileError(request.name, "planted by the test", "nowhere.cu");
    return DeviceDecorator::compile(request);
  }
  std::unique_ptr<runtime::Module> load(std::span<const std::byte> image) override {
    auto module = DeviceDecorator::load(image);
    if (spilling-- > 0) return std::make_unique<SpillingModule>(std::move(module));
    return module;
  }
  bool fits(runtime::Function function, const runtime::Launch& launch) const override {
    return misfits-- <= 0 && DeviceDecorator::fits(function, launch);
  }
  void* allocate(std::size_t bytes) override {
    if (full) throw OutOfMemory("allocate", 0, "planted by the test");
    return DeviceDecorator::allocate(bytes);
  }
  std::vector<float> time(int samples, const std::function<void()>& before,
                          const std::function<void()>& timed) override {
    if (fails) throw DeviceError("time", 700, "planted by the test");
    timers.pass();
    return DeviceDecorator::time(samples, before, timed);
  }

  Gate compilers;
  Gate timers;  ///< while it is closed searches come to no end; what is not timed goes on
  std::atomic<bool> captures = false;
  std::atomic<int> compiled = 0;
  std::atomic<bool> fails = false;       ///< whatever is timed
  std::atomic<int> spilling = 0;         ///< of the modules that are loaded next
  std::atomic<bool> full = false;        ///< nothing more is allocated
  mutable std::atomic<int> misfits = 0;  ///< of the launches that are asked about next
  std::string refused;                   ///< a part of a text that does not compile

 private:
  runtime::Model model_;
};

class ChooserTest : public TunerTest {
 protected:
  [[nodiscard]] static Problem wider(std::int64_t columns) {
    Problem problem = small_problem();
    problem.columns = columns;
    return problem;
  }

  /// What a chooser says of the problem, whose kernel must be right.
  Choice choose(Chooser& chooser, const Problem& problem = small_problem()) {
    const Chosen& chosen = chooser.choose(problem, nullptr);
    EXPECT_EQ(tuner::Verifier(device, problem, 1).mismatch(chosen.kernel), std::nullopt);
    return chosen.choice;
  }

  Choice settled(Chooser& chooser, const Problem& problem = small_problem()) {
    static_cast<void>(
        until([&] { return !chooser.choose(problem, nullptr).choice.provisional; }, std::chrono::minutes(3)));
    return choose(chooser, problem);
  }

  ObedientDevice device;
  cache::Cache database = open();
};

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

TEST_F(ChooserTest, AFailureInTheBackgroundIsSaidOnceAndAStandInStays) {
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

TEST_F(ChooserTest, AStandInStandsWhenTheBackgroundHasEnded) {
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
    EXPECT_THAT(after.reason, HasSubstr("tuning in the background has ended"));
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

TEST_F(ChooserTest, AProcessTunesOneProblemAtATime) {
  Chooser chooser(device, database, quick_settings(), Policy::tune);
  const std::vector<Problem> problems{small_problem(), wider(64), wider(128)};
  device.compilers.close();
  std::vector<std::jthread> threads;
  for (const Problem& problem : problems) threads.emplace_back([&] { choose(chooser, problem); });
  device.compilers.wait();
  int claimed = 0;
  const tuner::Tuner tuner(device, database, quick_settings());
  for (const Problem& problem : problems)
    if (!database.claim(tuner.key(problem))) ++claimed;
  EXPECT_EQ(claimed, 1);
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

/// Measured where the clock is ahead.
TEST_F(ChooserTest, AWinnerOfTomorrowThatDoesNotCompileGivesWay) {
  const cache::Key key = tuner::Tuner(device, database, quick_settings()).key(wider(101));
  Choice first;
  {
    Chooser chooser(device, database, quick_settings(), Policy::tune);
    first = choose(chooser, wider(101));
  }
  cache::Cache merged = cache::Cache::open(file() + "-merged");
  for (cache::Measurement m : database.measurements(key)) {
    m.created_at.replace(0, 4, "2099");
    merged.add(m);
  }
  device.refused = first.config;
  for (int process = 0; process < 2; ++process) {
    Chooser chooser(device, merged, quick_settings(), Policy::lookup);
    EXPECT_NE(choose(chooser, wider(101)).config, first.config);
  }
}

TEST_F(ChooserTest, AWinnerOfTheSiteThatDoesNotCompileHereIsNoAnswer) {
  Choice at_the_site;
  {
    Chooser chooser(device, database, quick_settings(), Policy::tune);
    at_the_site = choose(chooser);
  }
  // Without compiled kernels.
  cache::Cache::open(file() + "-site")
      .add(database.measurements(tuner::Tuner(device, database, quick_settings()).key(small_problem())));
  const ScopedEnvironment site("CE_SITE_DB", file() + "-site"), none("CE_SYSTEM_DB", "none");
  const LogLines log;
  device.refused = "block/warps=7777";
  {
    cache::Cache own = cache::Cache::open_layered(file() + "-healthy");
    Chooser chooser(device, own, quick_settings(), Policy::tune);
    EXPECT_EQ(choose(chooser).config, at_the_site.config);
  }
  device.refused = at_the_site.config;
  {
    cache::Cache own = cache::Cache::open_layered(file() + "-frozen");
    Chooser chooser(device, own, quick_settings(), Policy::frozen);
    EXPECT_THROW(choose(chooser), NotTuned);
    EXPECT_THROW(choose(chooser), NotTuned);
  }
  cache::Cache own = cache::Cache::open_layered(file() + "-tuned");
  Chooser chooser(device, own, quick_settings(), Policy::tune);
  const Choice tuned = choose(chooser);
  EXPECT_EQ(tuned.origin, Origin::tuned);
  EXPECT_NE(tuned.config, at_the_site.config);
  EXPECT_EQ(log.count(LogLevel::warning, "does not compile here"), 1) << "said once";
  int quarantined = 0;
  for (const cache::Measurement& m :
       own.measurements(tuner::Tuner(device, own, quick_settings()).key(small_problem())))
    quarantined += m.config == at_the_site.config && m.outcome == cache::Outcome::quarantined;
  EXPECT_EQ(quarantined, 1);
}

TEST_F(ChooserTest, WhereNothingCompilesTheCompilerIsAtFaultAndNotTheWinner) {
  Choice tuned;
  {
    Chooser chooser(device, database, quick_settings(), Policy::tune);
    tuned = choose(chooser);
  }
  const cache::Key key = tuner::Tuner(device, database, quick_settings()).key(small_problem());
  for (const Policy policy : {Policy::frozen, Policy::lookup, Policy::tune}) {
    cache::Cache without_binaries = cache::Cache::in_memory();
    for (const cache::Measurement& measurement : database.measurements(key))
      without_binaries.add(measurement);
    device.refused = " ";
    Chooser broken(device, without_binaries, quick_settings(), policy);
    EXPECT_THROW(static_cast<void>(broken.choose(small_problem(), nullptr)), CompileError);
    device.refused.clear();
    Chooser mended(device, without_binaries, quick_settings(), policy);
    EXPECT_EQ(choose(mended).config, tuned.config);
  }
}

/// Times of a few rows say little about many.
TEST_F(ChooserTest, AWinnerOfWhenMemoryWasShortIsSearchedAgain) {
  Problem problem = small_problem();
  problem.rows = 4096;
  tuner::Settings settings = quick_settings();
  settings.scratch_bytes = 8 << 10;
  {
    Chooser chooser(device, database, settings, Policy::tune);
    EXPECT_EQ(choose(chooser, problem).origin, Origin::tuned);
  }
  {
    Chooser still_short(device, database, settings, Policy::tune);
    EXPECT_EQ(choose(still_short, problem).origin, Origin::database);
  }
  settings.scratch_bytes = 64 << 20;
  {
    Chooser frozen(device, database, settings, Policy::frozen);
    EXPECT_EQ(choose(frozen, problem).origin, Origin::database);
  }
  Chooser chooser(device, database, settings, Policy::tune);
  const Choice again = choose(chooser, problem);
  EXPECT_EQ(again.origin, Origin::tuned);
  const tuner::Tuner tuner(device, database, settings);
  EXPECT_EQ(tuner.known_winner(problem)->winner.measurement.rows, 4096);
}

TEST_F(ChooserTest, AnOwnWinnerThatNoLongerCompilesMakesRoomForTheNext) {
  Choice before;
  {
    Chooser chooser(device, database, quick_settings(), Policy::tune);
    before = choose(chooser);
  }
  // Another compiler: no binary is known, and the winner's text is refused.
  cache::Cache without_binaries = cache::Cache::open(file() + "-copy");
  const tuner::Tuner tuner(device, database, quick_settings());
  without_binaries.add(database.measurements(tuner.key(small_problem())));
  device.refused = before.config;
  Chooser chooser(device, without_binaries, quick_settings(), Policy::lookup);
  const Choice next = choose(chooser);
  EXPECT_EQ(next.origin, Origin::database);
  EXPECT_NE(next.config, before.config);
}

TEST_F(ChooserTest, TheFileAloneIsTheDatabaseOnceASearchHasEnded) {
  Chooser chooser(device, database, quick_settings(), Policy::tune);
  EXPECT_EQ(choose(chooser).origin, Origin::tuned);
  const std::string copy = file() + "-copied";
  std::filesystem::copy_file(file(), copy);
  cache::Cache copied = cache::Cache::open(copy);
  Chooser frozen(device, copied, quick_settings(), Policy::frozen);
  EXPECT_EQ(choose(frozen).origin, Origin::database);
}

/// A final that an import, a merge or the site's database has, with a binary.
cache::Measurement from_elsewhere(const tuner::Tuner& tuner, const Config& config, double median_us) {
  const Problem problem = small_problem();
  return {.key = tuner.key(problem),
          .config = to_text(config),
          .template_digest = generator::template_digest(problem.operation, config.variant),
          .compile_key = "made-elsewhere-" + to_text(config),
          .stage = cache::stage_of_finals,
          .rows = problem.rows,
          .bytes = generator::traffic(problem).total(),
          .samples_us = std::vector<float>(6, static_cast<float>(median_us)),
          .median_us = median_us,
          .created_at = "2030-01-01T12:00:00.000Z"};
}

TEST_F(ChooserTest, AWinnerFromElsewhereIsVerifiedOnceBeforeItServes) {
  const Problem problem = small_problem();
  const tuner::Tuner tuner(device, database, quick_settings());
  const std::vector<Config> configs = tuner::safe_defaults(problem, device.model());
  const cache::Measurement wrong = from_elsewhere(tuner, configs.at(0), 1),
                           right = from_elsewhere(tuner, configs.at(1), 2);
  database.add(std::vector{wrong, right});
  // The kernel of another operation has the same entry and writes something else.
  Problem other = problem;
  other.operation = generator::Operation::log_softmax;
  cache::Cache scratch = cache::Cache::in_memory();
  for (const auto& [of, measurement] : {std::pair{other, wrong}, std::pair{problem, right}}) {
    const auto built = tuner::build(device, scratch, of, generator::parse_config(measurement.config));
    database.keep_binary(measurement.compile_key, built.images.at(0), {.compiler = "", .name = ""});
  }
  for (const Policy policy : {Policy::frozen, Policy::lookup, Policy::tune}) {
    // What cannot be verified now does not serve either.
    if (policy == Policy::frozen) {
      device.captures = true;
      Chooser capturing(device, database, quick_settings(), policy);
      EXPECT_THROW(choose(capturing), Unsupported);
      Chooser lookup(device, database, quick_settings(), Policy::lookup);
      const Choice choice = choose(lookup);
      EXPECT_TRUE(choice.provisional);
      EXPECT_THAT(choice.reason, HasSubstr("not verified on this machine: the stream is being captured"));
      device.captures = false;
      EXPECT_FALSE(choose(lookup).provisional);
    }
    Chooser chooser(device, database, quick_settings(), policy);
    const Choice choice = choose(chooser);
    EXPECT_EQ(choice.origin, Origin::database);
    EXPECT_EQ(choice.config, right.config);
  }
  const auto left_out = tuner::decide(database.measurements(wrong.key), problem.operation);
  ASSERT_TRUE(left_out);
  EXPECT_EQ(left_out->ranking.size(), 1U);
  int quarantined = 0;
  for (const cache::Measurement& measurement : database.measurements(wrong.key))
    if (measurement.outcome == cache::Outcome::quarantined) {
      ++quarantined;
      EXPECT_THAT(measurement.reason, testing::StartsWith("wrong answer: "));
    }
  EXPECT_EQ(quarantined, 1);
  EXPECT_TRUE(database.is_verified(right.compile_key, tuner::machine_of(device)));
  EXPECT_FALSE(database.is_verified(wrong.compile_key, tuner::machine_of(device)));
  EXPECT_FALSE(database.is_verified(right.compile_key, "another machine"));
}

/// What this machine has tuned it has verified.
TEST_F(ChooserTest, AnOwnWinnerIsNotVerifiedAgain) {
  {
    Chooser chooser(device, database, quick_settings(), Policy::tune);
    EXPECT_EQ(choose(chooser).origin, Origin::tuned);
  }
  device.full = true;  // verifying takes memory
  Chooser chooser(device, database, quick_settings(), Policy::frozen);
  EXPECT_EQ(chooser.choose(small_problem(), nullptr).choice.origin, Origin::database);
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

TEST_F(ChooserTest, AStandInThatSpillsGivesWayToTheNextThatDoesNot) {
  const std::vector<generator::Config> ranked = tuner::safe_defaults(small_problem(), device.model());
  const auto stand_in = [&](const char* name, int spilling) {
    cache::Cache own = cache::Cache::open(file() + name);
    Chooser chooser(device, own, quick_settings(), Policy::lookup);
    device.spilling = spilling;
    return choose(chooser).config;
  };
  EXPECT_EQ(stand_in("-none", 0), generator::to_text(ranked[0]));
  EXPECT_EQ(stand_in("-first", 1), generator::to_text(ranked[1]));
  EXPECT_EQ(stand_in("-all", 3), generator::to_text(ranked[0]));
  device.refused = generator::to_text(ranked[1]);
  EXPECT_EQ(stand_in("-no-second", 1), generator::to_text(ranked[0]));
}

TEST_F(ChooserTest, AStandInCompilesAndFits) {
  const std::vector<generator::Config> ranked = tuner::safe_defaults(small_problem(), device.model());
  const auto stand_in = [&](const char* name) {
    cache::Cache own = cache::Cache::open(file() + name);
    Chooser chooser(device, own, quick_settings(), Policy::lookup);
    return choose(chooser).config;
  };
  device.misfits = 4;
  EXPECT_EQ(stand_in("-misfits"), generator::to_text(ranked[4]));
  device.refused = generator::to_text(ranked[0]);
  EXPECT_EQ(stand_in("-refused"), generator::to_text(ranked[1]));
}

TEST_F(ChooserTest, WhatIsInQuarantineIsNoStandIn) {
  const std::vector<generator::Config> ranked = tuner::safe_defaults(small_problem(), device.model());
  const auto quarantine = [&](std::span<const generator::Config> configs) {
    for (const generator::Config& config : configs)
      database.add({.key = tuner::Tuner(device, database, quick_settings()).key(small_problem()),
                    .config = generator::to_text(config),
                    .template_digest = generator::template_digest(small_problem().operation, config.variant),
                    .outcome = cache::Outcome::quarantined,
                    .reason = "planted by the test"});
  };
  quarantine(std::span(ranked).first(2));
  Chooser chooser(device, database, quick_settings(), Policy::lookup);
  EXPECT_EQ(choose(chooser).config, generator::to_text(ranked[2]));
  quarantine(std::span(ranked).subspan(2));
  Chooser none(device, database, quick_settings(), Policy::lookup);
  try {
    choose(none);
    ADD_FAILURE() << "ran what is in quarantine";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::verification);
    EXPECT_THAT(error.what(), HasSubstr("in quarantine"));
  }
}

/// As beside a program that has allocated nearly all there is.
TEST_F(ChooserTest, WhereMemoryIsTooShortToTuneAStandInRuns) {
  const LogLines log;
  {
    Chooser chooser(device, database, quick_settings(), Policy::tune);
    device.full = true;
    for (int call = 0; call < 3; ++call) {
      const Choice choice = chooser.choose(small_problem(), nullptr).choice;
      EXPECT_EQ(choice.origin, Origin::fallback);
      EXPECT_TRUE(choice.provisional);
      EXPECT_THAT(choice.reason, HasSubstr("memory is too short"));
    }
    device.full = false;
    EXPECT_TRUE(choose(chooser).provisional) << "not at each call";
  }
  EXPECT_EQ(log.count(LogLevel::warning, "for want of memory"), 1);
  Chooser next(device, database, quick_settings(), Policy::tune);
  EXPECT_EQ(choose(next).origin, Origin::tuned);
}

TEST_F(ChooserTest, TwoModelsInOneProcessHaveTheirOwnWinners) {
  ObedientDevice other(" of another model");
  cache::Cache its_database = open();
  const auto count = [&](const runtime::Device& of) {
    return database.measurements({generator::key_text(small_problem()), of.model().key()}).size();
  };
  Chooser tunes(device, database, quick_settings(), Policy::tune);
  EXPECT_EQ(choose(tunes).origin, Origin::tuned);
  const std::size_t measured = count(device);
  EXPECT_GT(measured, 0U);

  Chooser frozen(other, its_database, quick_settings(), Policy::frozen);
  EXPECT_THROW(static_cast<void>(frozen.choose(small_problem(), nullptr)), NotTuned);
  Chooser looks_up(other, its_database, quick_settings(), Policy::lookup);
  EXPECT_EQ(looks_up.choose(small_problem(), nullptr).choice.origin, Origin::fallback);
  EXPECT_EQ(count(other), 0U);

  Chooser also_tunes(other, its_database, quick_settings(), Policy::tune);
  EXPECT_EQ(also_tunes.choose(small_problem(), nullptr).choice.origin, Origin::tuned);
  EXPECT_GT(count(other), 0U);
  EXPECT_EQ(count(device), measured);
  EXPECT_EQ(choose(tunes).origin, Origin::tuned);
}

}  // namespace
}  // namespace ce::test
