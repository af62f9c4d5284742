// Verdicts on made-up runs whose truth is known.
#include "cli/analysis/verdict.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "tests/seed.hpp"
#include "tests/tuner/fixture.hpp"

namespace ce::tuner {
namespace {

using Runs = std::vector<Run>;  // within a test, Run is GoogleTest's

Runs runs(std::initializer_list<double> medians_us) {
  Runs list;
  for (const double us : medians_us) list.push_back({.median_us = us});
  return list;
}

TEST(Verdict, TellsSlowerFasterAndSame) {
  const Runs before = runs({100, 100.1, 99.9});
  const Comparison slower = compare(before, runs({103, 103.1, 102.9}), {});
  EXPECT_EQ(slower.verdict, Verdict::slower);
  EXPECT_NEAR(slower.ratio, 1.03, 1e-4);
  EXPECT_TRUE(slower.interval.contains(1.03));
  EXPECT_FALSE(slower.interval.contains(1));
  EXPECT_EQ(slower.before, 3);
  EXPECT_EQ(slower.after, 3);
  EXPECT_FALSE(slower.may_be_slower());
  EXPECT_EQ(compare(runs({103, 103.1, 102.9}), before, {}).verdict, Verdict::faster);
  EXPECT_EQ(compare(before, runs({100.2, 100.1}), {}).verdict, Verdict::same);
  EXPECT_EQ(compare(before, runs({101.5, 101.6, 101.4}), {}).verdict, Verdict::slower);
  EXPECT_EQ(compare(before, runs({98.5, 98.6, 98.4}), {}).verdict, Verdict::faster);
}

/// Of kernels with few blocks a run is a process, and these differ by more.
TEST(Verdict, WhatAProcessHasToItselfIsAnErrorOfItsRun) {
  const auto side = [](double us, int processes, double process_us) {
    Runs list;
    for (int i = 0; i < processes; ++i)
      list.push_back({.median_us = us + 0.05 * (i % 3 - 1), .process_us = process_us});
    return list;
  };
  EXPECT_EQ(compare(side(5.25, 3, 0), side(5.65, 3, 0), {.degrees = 20}).verdict, Verdict::slower);
  const Comparison few = compare(side(5.25, 3, usual_process_us), side(5.65, 3, usual_process_us), {});
  EXPECT_EQ(few.verdict, Verdict::unsure);
  EXPECT_TRUE(few.may_be_slower());
  EXPECT_EQ(compare(side(5.25, 12, usual_process_us), side(5.65, 12, usual_process_us), {}).verdict,
            Verdict::slower);
  EXPECT_EQ(compare(side(500, 3, usual_process_us), side(508, 3, usual_process_us), {}).verdict,
            Verdict::slower)
      << "of a long kernel that is little";
  EXPECT_EQ(
      compare(side(5.25, 3, usual_process_us), side(5.65, 3, usual_process_us), {.scale = 0.5}).deviation,
      few.deviation)
      << "a quiet machine does not make processes alike";
  const Runs many_blocks = side(5.25, 3, 0);
  EXPECT_GT(compare(many_blocks, side(5.65, 3, usual_process_us), {.scale = 0.5}).deviation, 0.02);
  EXPECT_GT(compare(side(5.65, 3, usual_process_us), many_blocks, {.scale = 0.5}).deviation, 0.02);
  for (const int made : {0, 8, 64}) EXPECT_EQ(runs_to_make(side(5.5, made, usual_process_us)), made + 8);
  EXPECT_LT(runs_to_make(side(5.5, 160, usual_process_us)), 160)
      << "they agree better than processes usually do";
  EXPECT_EQ(runs_to_make(side(500, 8, usual_process_us)), fewest_runs_to_make);
}

TEST(Verdict, AnEffectThatDoesNotMatterIsNone) {
  Runs before(40, {.median_us = 1000}), after(40, {.median_us = 1005});
  const Comparison sure = compare(before, after, {});
  EXPECT_GT(sure.interval.low, 1) << "half a percent, and no doubt of it";
  EXPECT_EQ(sure.verdict, Verdict::same);
}

TEST(Verdict, IsUnsureWhereRunsDisagree) {
  const Comparison open = compare(runs({100, 106, 97}), runs({105, 99, 108}), {});
  EXPECT_EQ(open.verdict, Verdict::unsure);
  EXPECT_TRUE(open.may_be_slower());
  EXPECT_EQ(compare(runs({100}), runs({102}), {.scale = 10}).verdict, Verdict::unsure);
  // A run that says of itself that it knows little.
  const Runs vague{{.median_us = 102, .error = 0.02}};
  EXPECT_EQ(compare(runs({100}), vague, {}).verdict, Verdict::unsure);
  // What is unsure may still exclude a slowdown.
  const Comparison low = compare(runs({100}), runs({97}), {.scale = 5});
  EXPECT_EQ(low.verdict, Verdict::unsure);
  EXPECT_FALSE(low.may_be_slower());
}

TEST(Verdict, NoRunIsBetterThanItsOwnSamplesSay) {
  const Runs vague(20, {.median_us = 1000, .error = 0.2});
  const Noise noise = pooled_noise(std::vector<Runs>(6, vague));
  EXPECT_EQ(noise.scale, 0.5) << "equal medians";
  const Comparison one = compare({vague.data(), 1}, {vague.data(), 1}, noise);
  EXPECT_NEAR(one.deviation, 0.2, 1e-9);
  const Runs equal(20, {.median_us = 1000});
  EXPECT_NEAR(compare(equal, equal, noise).deviation, 0.5 * usual_deviation(1000), 1e-9);
  EXPECT_NEAR(compare(vague, vague, noise).deviation, 0.2, 1e-9);
  // Where noise is beyond what the samples show, it counts; the factor is not of what they show.
  EXPECT_NEAR(compare({vague.data(), 1}, {vague.data(), 1}, {.scale = 20}).deviation, 0.2, 1e-9);
  EXPECT_NEAR(compare(runs({1000}), runs({1000}), {.scale = 20}).deviation, 20 * usual_deviation(1000), 1e-9);
  const Runs scattered{{.median_us = 800, .error = 0.01}, {.median_us = 1250, .error = 0.01}};
  EXPECT_GT(compare(scattered, scattered, pooled_noise(std::vector<Runs>(30, scattered))).deviation, 0.2);
}

TEST(Verdict, OneRunEachIsHeldAgainstTheNoiseOfTheDevice) {
  const Noise known{.degrees = 20};
  EXPECT_EQ(compare(runs({500}), runs({515}), known).verdict, Verdict::slower);
  EXPECT_EQ(compare(runs({500}), runs({500}), known).verdict, Verdict::same);
  EXPECT_EQ(compare(runs({5}), runs({5.1}), known).verdict, Verdict::unsure)
      << "of short runs little is known";
  // What another GPU showed is no evidence, but of effects that no machine has by itself.
  EXPECT_EQ(compare(runs({500}), runs({515}), {}).verdict, Verdict::unsure);
  EXPECT_EQ(compare(runs({500}), runs({600}), {}).verdict, Verdict::slower);
  EXPECT_EQ(pooled_noise({}).degrees, Noise{}.degrees);
  EXPECT_EQ(pooled_noise(std::vector<Runs>(6, runs({500, 501, 500}))).degrees, Noise{}.degrees + 12);
}

TEST(Verdict, TheReferenceTakesOutWhatTheMachineDid) {
  const Runs before{{.median_us = 100, .reference_us = 27}},
      throttled{{.median_us = 110, .reference_us = 29.7}}, slower{{.median_us = 103, .reference_us = 28.5}};
  const Comparison drifted = compare(before, throttled, {});
  EXPECT_NE(drifted.verdict, Verdict::slower);
  EXPECT_NEAR(drifted.ratio, 1, 1e-3);
  EXPECT_NEAR(drifted.drift.value(), 0.1, 1e-3);
  EXPECT_NEAR(drifted.taken_out, 0.1, 1e-3);
  // Where the machine was another one, so to speak, no small effect can be told.
  const Runs crawling{{.median_us = 150, .reference_us = 40.5}};
  EXPECT_EQ(compare(before, crawling, {}).verdict, Verdict::unsure);
  const Noise known{.degrees = 20};
  EXPECT_EQ(compare(before, slower, known).verdict, Verdict::slower);
  EXPECT_EQ(compare(before, slower, {}).taken_out, 0) << "the reference moves by 5% by itself";
  EXPECT_NEAR(compare(before, slower, {}).drift.value(), 28.5 / 27 - 1, 1e-9) << "and that is said";
  EXPECT_EQ(compare(before, runs({103}), known).verdict, Verdict::slower) << "no reference, no drift";
  EXPECT_EQ(compare(before, runs({103}), known).drift, std::nullopt);
}

/// As what the reference shows grows, so does what is taken out: no run is far off because of a hair.
TEST(Verdict, WhatIsTakenForDriftHasNoSteps) {
  const Runs before{{.median_us = 100, .reference_us = 100}};
  const auto drift = [&](double log_reference) {
    const Runs after{{.median_us = 100, .reference_us = 100 * std::exp(log_reference)}};
    return std::log1p(compare(before, after, {}).taken_out);
  };
  EXPECT_EQ(drift(0.0599), 0);
  EXPECT_NEAR(drift(0.0601), 0, 1e-3);
  EXPECT_NEAR(drift(0.075), 0.045, 1e-5);
  EXPECT_NEAR(drift(0.0899), 0.0899, 1e-3);
  EXPECT_NEAR(drift(0.0901), 0.0901, 1e-6);
  EXPECT_NEAR(drift(-0.075), -0.045, 1e-5);
}

/// What was taken out is known but roughly: runs that it leaves apart are not noise of the machine.
TEST(Verdict, NoiseIsBesideTheErrorOfDrift) {
  const std::vector<Runs> repeats{
      Runs{{.median_us = 100, .reference_us = 27}, {.median_us = 154, .reference_us = 40.5}}};
  EXPECT_NEAR(pooled_noise(repeats).scale, 1, 0.1);
}

TEST(Verdict, WhatALaunchCostsIsTakenOut) {
  const Runs before{{.median_us = 6, .launch_us = 2.5}, {.median_us = 6.02, .launch_us = 2.52}};
  Runs after{{.median_us = 6.2, .launch_us = 2.7}, {.median_us = 6.2, .launch_us = 2.7}};
  EXPECT_NEAR(compare(before, after, {}).ratio, 1, 1e-3);
  EXPECT_LT(compare(before, after, {}).deviation, compare(runs({6, 6.02}), runs({6.2, 6.2}), {}).deviation);
  after.back().launch_us = 0;
  EXPECT_NEAR(compare(before, after, {}).ratio, 6.2 / 6.01, 1e-3) << "not known of all";
  const Runs late{{.median_us = 6, .launch_us = 9}, {.median_us = 6, .launch_us = 9}};
  EXPECT_NEAR(compare(before, late, {}).ratio, 3 / 6.01, 1e-3) << "half of a time at most";
}

TEST(Verdict, SaysHowManyRunsAreNeeded) {
  EXPECT_EQ(runs_needed(0.0001), 1);
  EXPECT_EQ(runs_needed(1), std::nullopt);
  EXPECT_EQ(runs_needed(0.01, 1), std::nullopt) << "one is too few, whatever comes";
  std::mt19937_64 engine(test::test_seed());
  constexpr double us = 9;
  const int needed = runs_needed(usual_deviation(us)).value();
  EXPECT_LE(runs_needed(usual_deviation(us), needed + 1), needed);
  EXPECT_GT(runs_needed(usual_deviation(us), needed - 2), needed);
  std::normal_distribution<> normal(0, usual_deviation(us));
  constexpr int draws = 1000;
  for (const auto& [effect, power] : {std::pair{1.015, 0.8}, std::pair{1.03, 0.95}}) {
    int found = 0;
    for (int draw = 0; draw < draws; ++draw) {
      Runs before, after;
      for (int run = 0; run < needed; ++run) {
        before.push_back({.median_us = us * std::exp(normal(engine))});
        after.push_back({.median_us = us * effect * std::exp(normal(engine))});
      }
      found += compare(before, after, {}).verdict == Verdict::slower ? 1 : 0;
    }
    EXPECT_GE(found, draws * (power - 0.05)) << needed << " runs, " << effect;
  }
}

TEST(Verdict, AsManyRunsAreMadeAsNoiseAsksForWithinBounds) {
  EXPECT_EQ(runs_to_make(1000, {}), fewest_runs_to_make);
  EXPECT_GT(runs_to_make(9, {}), fewest_runs_to_make);
  EXPECT_LT(runs_to_make(9, {}), most_runs_to_make);
  EXPECT_EQ(runs_to_make(9, {.scale = 100}), most_runs_to_make) << "a thousand would not do";
  const Runs apart(most_processes_to_make, {.median_us = 5, .process_us = 2 * usual_process_us});
  EXPECT_EQ(runs_to_make(apart), most_processes_to_make);
}

TEST(Verdict, NoiseIsPooledOverRepeats) {
  EXPECT_EQ(pooled_noise({}).scale, 1);
  std::mt19937_64 engine(test::test_seed());
  const auto repeats = [&](double scale) {
    std::vector<Runs> groups(200);
    std::normal_distribution<> normal;  // whose own deviation must not be 0
    for (Runs& group : groups)
      for (int run = 0; run < 3; ++run)
        group.push_back({.median_us = 200 * std::exp(scale * usual_deviation(200) * normal(engine))});
    return groups;
  };
  EXPECT_NEAR(pooled_noise(repeats(3)).scale, 3, 0.5);
  EXPECT_NEAR(pooled_noise(repeats(1)).scale, 1, 0.2);
  EXPECT_EQ(pooled_noise(repeats(0)).scale, 0.5) << "never less";
  EXPECT_EQ(pooled_noise(std::vector{runs({1}), runs({2})}).scale, 1) << "one run says nothing of noise";
}

TEST(Verdict, IntervalsCoverTheTruth) {
  std::mt19937_64 engine(test::test_seed());
  std::normal_distribution<> normal(0, usual_deviation(50));
  constexpr int draws = 2000;
  int outside = 0;
  for (int draw = 0; draw < draws; ++draw) {
    Runs before, after;
    for (int run = 0; run < 2; ++run) {
      before.push_back({.median_us = 50 * std::exp(normal(engine))});
      after.push_back({.median_us = 51 * std::exp(normal(engine))});
    }
    outside += compare(before, after, {.degrees = 20}).narrow.contains(1.02) ? 0 : 1;
  }
  // A tenth at most; some 172, as what is known of noise beforehand is right here. Four standard deviations each.
  EXPECT_LE(outside, 200 + 4 * std::sqrt(draws * 0.1 * 0.9));
  EXPECT_GE(outside, 172 - 4 * std::sqrt(draws * 0.086 * 0.914));
}

}  // namespace
}  // namespace ce::tuner
