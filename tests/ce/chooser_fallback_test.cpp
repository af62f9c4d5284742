// What the Chooser runs where there is no winner.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "ce/error.hpp"
#include "generator/source.hpp"
#include "tests/ce/chooser_fixture.hpp"
#include "tests/ce/log_lines.hpp"
#include "tuner/ranking.hpp"

namespace ce::test {
namespace {

using testing::HasSubstr;

/// Of small_problem().
cache::Measurement quarantined(const cache::Key& key, const generator::Config& config) {
  return {.key = key,
          .config = generator::to_text(config),
          .template_digest = generator::template_digest(small_problem().operation, config.variant),
          .outcome = cache::Outcome::quarantined,
          .reason = "planted by the test"};
}

TEST_F(ChooserTest, AFallbackThatSpillsGivesWayToTheNextThatDoesNot) {
  const std::vector<generator::Config> ranked = tuner::safe_defaults(small_problem(), device.model());
  const auto fallback = [&](const char* name, int spilling) {
    cache::Cache own = cache::Cache::open(file() + name);
    Chooser chooser(device, own, quick_settings(), Policy::lookup);
    device.spilling = spilling;
    return choose(chooser).config;
  };
  EXPECT_EQ(fallback("-none", 0), generator::to_text(ranked[0]));
  EXPECT_EQ(fallback("-first", 1), generator::to_text(ranked[1]));
  EXPECT_EQ(fallback("-all", 3), generator::to_text(ranked[0]));
  device.refused = generator::to_text(ranked[1]);
  EXPECT_EQ(fallback("-no-second", 1), generator::to_text(ranked[0]));
}

TEST_F(ChooserTest, AFallbackCompilesAndFits) {
  const std::vector<generator::Config> ranked = tuner::safe_defaults(small_problem(), device.model());
  const auto fallback = [&](const char* name) {
    cache::Cache own = cache::Cache::open(file() + name);
    Chooser chooser(device, own, quick_settings(), Policy::lookup);
    return choose(chooser).config;
  };
  device.misfits = 4;
  EXPECT_EQ(fallback("-misfits"), generator::to_text(ranked[4]));
  device.refused = generator::to_text(ranked[0]);
  EXPECT_EQ(fallback("-refused"), generator::to_text(ranked[1]));
}

TEST_F(ChooserTest, WhatIsInQuarantineIsNoFallback) {
  const std::vector<generator::Config> ranked = tuner::safe_defaults(small_problem(), device.model());
  const cache::Key key = tuner::Tuner(device, database, quick_settings()).key(small_problem());
  const auto quarantine = [&](std::span<const generator::Config> configs) {
    for (const generator::Config& config : configs) database.add(quarantined(key, config));
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

/// Another rank's config runs here, too, unless it is in quarantine here.
TEST_F(ChooserTest, WhatIsInQuarantineIsNotRunBecauseAnotherRankDoes) {
  const std::vector<generator::Config> ranked = tuner::safe_defaults(small_problem(), device.model());
  const cache::Key key = tuner::Tuner(device, database, quick_settings()).key(small_problem());
  const std::string right = generator::to_text(ranked[1]), wrong = generator::to_text(ranked[2]);
  const LogLines log;
  Chooser chooser(device, database, quick_settings(), Policy::lookup);
  chooser.use(key.id(), right);
  EXPECT_EQ(choose(chooser).config, right);
  EXPECT_EQ(log.count(LogLevel::warning, "cannot be used on this rank"), 0U);
  database.add(quarantined(key, ranked[2]));
  chooser.use(key.id(), wrong);
  EXPECT_NE(choose(chooser).config, wrong);
  EXPECT_EQ(log.count(LogLevel::warning, "cannot be used on this rank: it is in quarantine"), 1U);
}

/// As beside a program that has allocated nearly all there is.
TEST_F(ChooserTest, WhereMemoryIsTooShortToTuneAFallbackRuns) {
  const LogLines log;
  {
    Chooser chooser(device, database, quick_settings(), Policy::tune);
    device.full = true;
    for (int call = 0; call < 3; ++call) {
      const Choice choice = chooser.choose(small_problem(), nullptr).choice;
      EXPECT_EQ(choice.origin, Origin::fallback);
      EXPECT_TRUE(choice.provisional);
      EXPECT_THAT(choice.reason, HasSubstr("there is not enough memory"));
    }
    device.full = false;
    EXPECT_TRUE(choose(chooser).provisional) << "not at each call";
  }
  EXPECT_EQ(log.count(LogLevel::warning, "because memory is short"), 1);
  Chooser next(device, database, quick_settings(), Policy::tune);
  EXPECT_EQ(choose(next).origin, Origin::tuned);
}

}  // namespace
}  // namespace ce::test
