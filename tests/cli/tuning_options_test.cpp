// How a search is asked for.
#include <gtest/gtest.h>

#include <string>

#include "ce/error.hpp"
#include "cli/commands/tuning_run.hpp"

namespace ce::cli {
namespace {

const runtime::Model host{.name = "host:test"}, gpu{.name = "NVIDIA Test", .capability = 90};

TEST(TuningOptions, AreThoseOfTheDeviceUnlessAsked) {
  for (const runtime::Model& model : {host, gpu}) {
    const tuner::Settings usual = tuner::Settings::for_device(model), settings = settings_of({}, model);
    EXPECT_EQ(settings.budget_s, usual.budget_s);
    EXPECT_EQ(settings.scratch_bytes, usual.scratch_bytes);
    EXPECT_EQ(settings.search.most_configs, usual.search.most_configs);
    EXPECT_EQ(settings.search.final_samples, usual.search.final_samples);
  }
}

TEST(TuningOptions, ExhaustiveHasNoBound) {
  for (const runtime::Model& model : {host, gpu}) {
    const tuner::Settings settings = settings_of({.strategy = "exhaustive"}, model);
    EXPECT_EQ(settings.search.strategy, tuner::Strategy::exhaustive);
    EXPECT_EQ(settings.budget_s, 0);
    EXPECT_EQ(settings.search.most_configs, 0);
    EXPECT_EQ(settings_of({.configs = "7", .strategy = "exhaustive"}, model).search.most_configs, 7);
  }
  EXPECT_EQ(settings_of({.strategy = "random"}, gpu).budget_s, 0);
  EXPECT_GT(settings_of({.strategy = "halving"}, gpu).budget_s, 0);
}

TEST(TuningOptions, RoundsKeepTheirShareOfTheSamples) {
  const tuner::Settings usual = settings_of({}, gpu), twice = [&] {
    return settings_of({.samples = std::to_string(2 * usual.search.final_samples)}, gpu);
  }();
  EXPECT_EQ(twice.search.final_samples, 2 * usual.search.final_samples);
  EXPECT_EQ(twice.search.screening_samples, 2 * usual.search.screening_samples);
  EXPECT_EQ(twice.search.play_off.samples, 2 * usual.search.play_off.samples);
  EXPECT_EQ(settings_of({.samples = "1"}, gpu).search.screening_samples, 1);
}

TEST(TuningOptions, WhatIsWrongIsNamed) {
  const auto argument_of = [](const TuningOptions& options) -> std::string {
    try {
      static_cast<void>(settings_of(options, gpu));
      return "none";
    } catch (const InvalidArgument& error) {
      return std::string(error.argument());
    }
  };
  EXPECT_EQ(argument_of({.configs = "0"}), "--configs");
  EXPECT_EQ(argument_of({.scratch = "much"}), "--scratch");
  EXPECT_EQ(argument_of({.strategy = "guess"}), "--strategy");
  EXPECT_EQ(argument_of({.samples = "0"}), "--samples");
}

}  // namespace
}  // namespace ce::cli
