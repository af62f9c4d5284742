// Winners that the Chooser finds in databases: which serve, which are verified before, and which give way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "ce/error.hpp"
#include "generator/source.hpp"
#include "generator/variant.hpp"
#include "tests/ce/chooser_fixture.hpp"
#include "tests/ce/log_lines.hpp"
#include "tests/environment.hpp"
#include "tuner/decide.hpp"
#include "tuner/key.hpp"
#include "tuner/ranking.hpp"
#include "tuner/serving.hpp"

namespace ce::test {
namespace {

using generator::Config;
using generator::Problem;
using testing::HasSubstr;

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
    const int compiled = device.compiled;
    Chooser next(device, own, quick_settings(), Policy::tune);
    EXPECT_EQ(choose(next).config, at_the_site.config);
    EXPECT_EQ(device.compiled, compiled) << "what was compiled here is kept";
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
  EXPECT_EQ(log.count(LogLevel::warning, "does not compile on this machine"), 1) << "said once";
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
    database.keep_binary(measurement.compile_key, built.sources.at(0).binary, {.compiler = "", .name = ""});
  }
  for (const Policy policy : {Policy::frozen, Policy::lookup, Policy::tune}) {
    // What cannot be verified now does not serve either.
    if (policy == Policy::frozen) {
      device.captures = true;
      Chooser capturing(device, database, quick_settings(), policy);
      EXPECT_THROW(choose(capturing), Unsupported);
      Chooser lookup(device, database, quick_settings(), Policy::lookup);
      const Choice choice = choose(lookup);
      EXPECT_EQ(&lookup.choose(problem, nullptr), &lookup.choose(problem, nullptr))
          << "a kernel for each call";
      EXPECT_TRUE(choice.provisional);
      EXPECT_THAT(choice.reason,
                  HasSubstr("this machine has not verified the known winner: the stream is being captured"));
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

TEST_F(ChooserTest, TwoModelsInOneProcessHaveTheirOwnWinners) {
  ObedientDevice other(" of another model");
  cache::Cache its_database = open();
  const auto count = [&](const runtime::Device& of) {
    return database.measurements(tuner::key_of(small_problem(), of.model())).size();
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
