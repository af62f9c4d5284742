// What is said of made-up measurements whose truth is known.
#include "cli/analysis/explain.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "generator/source.hpp"
#include "generator/variant.hpp"
#include "tests/seed.hpp"
#include "tests/tuner/fixture.hpp"
#include "tuner/kernel.hpp"
#include "tuner/key.hpp"

namespace ce::tuner {
namespace {

using cache::Measurement;
using cache::Outcome;
using generator::Config;
using testing::HasSubstr;

generator::Problem problem() {
  return {.operation = generator::Operation::softmax, .dtype = DType::f32, .rows = 64, .columns = 4096};
}

runtime::Model model() {
  return {.name = "NVIDIA Test",
          .capability = 90,
          .multiprocessors = 132,
          .l2_bytes = 50 << 20,
          .shared_bytes_per_block = 232448,
          .shared_bytes_per_multiprocessor = 233472,
          .registers_per_multiprocessor = 65536,
          .threads_per_multiprocessor = 2048};
}

cache::Key key() { return tuner::key_of(problem(), model()); }

/// The configs of one variant.
std::vector<Config> configs(const std::string& variant) {
  std::vector<Config> found = generator::space(problem(), limits_of(model()));
  std::erase_if(found, [&](const Config& config) { return config.variant != variant; });
  return found;
}

Measurement measured(const Config& config, std::vector<float> samples, int stage, int registers = 32) {
  return {.key = key(),
          .config = to_text(config),
          .template_digest = generator::template_digest(problem().operation, config.variant),
          .stage = stage,
          .bytes = 32000,
          .samples_us = samples,
          .median_us =
              [&] {
                std::nth_element(samples.begin(), samples.begin() + samples.size() / 2, samples.end());
                return samples[samples.size() / 2];
              }(),
          .registers = registers};
}

std::vector<float> noisy(double median_us, double noise, std::mt19937_64& random, std::size_t count = 15) {
  std::vector<float> samples(count);
  for (float& sample : samples)
    sample = static_cast<float>(median_us * std::normal_distribution<>(1, noise)(random));
  return samples;
}

Explanation explain_all(const std::vector<Measurement>& measurements) {
  return explain(measurements, key(), problem()).value();
}

TEST(Bootstrap, OfEqualSamplesIsTheirValue) {
  const std::vector<double> medians = resampled_medians(std::vector<float>(7, 3), 50, 1);
  EXPECT_EQ(medians, std::vector<double>(50, 3));
  EXPECT_EQ(resampled_medians(std::vector<float>{1, 2, 9}, 20, 5),
            resampled_medians(std::vector<float>{1, 2, 9}, 20, 5));
}

TEST(Bootstrap, TheMiddleIsCutByPercentiles) {
  std::vector<double> values(101);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(100 - i);
  EXPECT_EQ(middle(values, 0.5).low, 25);
  EXPECT_EQ(middle(values, 0.5).high, 75);
  EXPECT_EQ(middle({4}, 0.95).low, 4);
}

TEST(Bootstrap, CoversTheTruthAboutAsOftenAsItSays) {
  const std::uint64_t seed = test::test_seed();
  std::mt19937_64 random(seed);
  int covered = 0;
  constexpr int times = 200;
  for (int i = 0; i < times; ++i) {
    const std::vector<double> a = resampled_medians(noisy(110, 0.03, random), 300, 1),
                              b = resampled_medians(noisy(100, 0.03, random), 300, 2);
    std::vector<double> ratios(a.size());
    for (std::size_t draw = 0; draw < a.size(); ++draw) ratios[draw] = a[draw] / b[draw];
    covered += middle(ratios, confidence).contains(1.1) ? 1 : 0;
  }
  // 190 are expected; fewer than 170 have a probability below 1e-6 even at a true coverage of 92%.
  EXPECT_GE(covered, 170) << "seed " << seed;
}

TEST(Explain, NothingWon) { EXPECT_FALSE(explain({}, key(), problem())); }

TEST(Explain, TellsADistanceFromNoise) {
  const std::uint64_t seed = test::test_seed();
  std::mt19937_64 random(seed);
  const std::vector<Config> block = configs("block");
  const Explanation why = explain_all({measured(block[0], noisy(100, 0.001, random), 1),
                                       measured(block[1], noisy(110, 0.001, random), 1),
                                       measured(block[2], noisy(50, 0.001, random), 0)});
  ASSERT_EQ(why.finalists.size(), 2U) << "what was only screened decides nothing";
  EXPECT_FALSE(why.finalists[1].is_open());
  EXPECT_NEAR(why.finalists[1].behind, 0.1, 0.01);
  EXPECT_TRUE(why.finalists[1].interval.contains(why.finalists[1].behind));
  EXPECT_NEAR(why.fastest, 1, 1e-9);
  EXPECT_EQ(why.ties, "");

  // Two that are the same, but for noise of a tenth.
  std::vector<float> samples = noisy(100, 0.1, random), shuffled = samples;
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  const Explanation same = explain_all({measured(block[0], samples, 1), measured(block[1], shuffled, 1)});
  EXPECT_TRUE(same.finalists[1].is_open()) << "seed " << seed;
  EXPECT_GT(same.fastest, 0.2) << "seed " << seed;
  EXPECT_LT(same.fastest, 0.8) << "seed " << seed;
  EXPECT_GE(same.near_fastest, same.fastest);
}

TEST(Explain, SaysHowTiesWereBroken) {
  const std::vector<Config> block = configs("block");
  const auto of = [&](std::size_t n, float us, int registers) {
    return measured(block[n], {us, us, us}, 1, registers);
  };
  const Explanation fewest =
      explain_all({of(0, 100, 64), of(1, 100.1F, 40), of(2, 100.2F, 48), of(3, 102, 16)});
  EXPECT_EQ(fewest.decision.winner.text(), to_text(block[1]));
  EXPECT_THAT(fewest.ties, HasSubstr("3 configs are within 0.3%"));
  EXPECT_THAT(fewest.ties, HasSubstr("the fewest registers, 40; the others have 48, 64"));
  EXPECT_TRUE(fewest.finalists[0].tied && fewest.finalists[1].tied && fewest.finalists[2].tied);
  EXPECT_FALSE(fewest.finalists[3].tied);
  EXPECT_LT(fewest.finalists[1].behind, 0) << "the fastest lost the tie";

  const Explanation smallest = explain_all({of(0, 100, 40), of(1, 100.1F, 40), of(2, 100.2F, 48)});
  EXPECT_EQ(smallest.decision.winner.text(), std::min(to_text(block[0]), to_text(block[1])));
  EXPECT_THAT(smallest.ties, HasSubstr("2 of them have the fewest registers, 40, and of these the winner's "
                                       "text comes first in alphabetical order"));
}

TEST(Explain, TimesOfOtherNumbersOfRowsAreNotHeldAgainstEachOther) {
  const std::vector<Config> block = configs("block");
  const std::vector<float> samples(15, 100), of_fewer_rows(15, 10);
  Measurement fewer = measured(block[1], of_fewer_rows, 1),
              fewer_looked_at = measured(block[1], of_fewer_rows, 0);
  fewer.rows = fewer_looked_at.rows = 3;
  Measurement winner = measured(block[0], samples, 1), looked_at = measured(block[0], samples, 0);
  winner.rows = looked_at.rows = 64;
  const Explanation why = explain_all({looked_at, fewer_looked_at, winner, fewer});
  EXPECT_EQ(why.decision.winner.text(), winner.config);
  EXPECT_EQ(why.finalists.size(), 1U);
  EXPECT_TRUE(why.effects.empty());
  fewer.rows = fewer_looked_at.rows = 64;
  const Explanation alike = explain_all({looked_at, fewer_looked_at, winner, fewer});
  EXPECT_EQ(alike.finalists.size(), 2U);
  EXPECT_FALSE(alike.effects.empty());
}

TEST(Explain, FindsWhatEachAxisDoes) {
  // Times are products, so that every pair shows the same ratio.
  const std::map<int, float> of_load{{0, 1.F}, {1, 1.04F}, {2, 0.97F}},
      of_warps{{2, 1.F}, {4, 0.9F}, {8, 1.2F}};
  std::vector<Measurement> measurements;
  for (const Config& config : configs("block"))
    if (of_warps.contains(config.warps) && of_load.contains(config.load) && config.vec == 4 &&
        config.store == 0) {
      const float us = 100 * of_load.at(config.load) * of_warps.at(config.warps);
      measurements.push_back(measured(config, {us, us, us}, 0));
      // Of another minute: everything is slower, which is no effect of an axis.
      if (config.load == 2) measurements.push_back(measured(config, {2 * us, 2 * us, 2 * us}, 1));
    }
  ASSERT_EQ(measurements.size(), 3U * 3 + 3);
  const Explanation why = explain_all(measurements);
  std::map<std::string, AxisEffect> effects;
  for (const AxisEffect& effect : why.effects) effects[effect.axis + "=" + effect.other] = effect;
  ASSERT_EQ(effects.size(), 4U);
  const auto expect = [&](const std::string& other, const std::string& value, double cost) {
    const AxisEffect& effect = effects.at(other);
    EXPECT_EQ(effect.value, value);
    EXPECT_EQ(effect.pairs, 3);
    EXPECT_NEAR(effect.median, cost, 1e-5) << other;
    ASSERT_TRUE(effect.at_winner) << other;
    EXPECT_NEAR(*effect.at_winner, cost, 1e-5) << other;
  };
  expect("load=ca", "cs", 1 / 0.97 - 1);
  expect("load=cg", "cs", 1.04 / 0.97 - 1);
  expect("warps=2", "4", 1 / 0.9 - 1);
  expect("warps=8", "4", 1.2 / 0.9 - 1);
}

TEST(Explain, CountsWhatWasNeverTried) {
  const std::vector<Config> block = configs("block"), two_pass = configs("two_pass");
  Measurement wrong = measured(two_pass[0], {1}, 0);
  wrong.outcome = Outcome::quarantined;
  Measurement old = measured(block[1], {1}, 0);
  old.template_digest = "0123";
  Measurement few_rows = measured(two_pass[1], {1}, 0);
  few_rows.rows = 8;
  Measurement winner = measured(block[0], {100}, 0);
  winner.rows = 64;
  const Explanation why = explain_all({winner, wrong, old, few_rows});
  EXPECT_EQ(why.tried(), 3);
  EXPECT_EQ(why.configs(), static_cast<int>(generator::space(problem(), limits_of(model())).size()));
  for (const Coverage& variant : why.coverage) {
    EXPECT_EQ(variant.tried, variant.variant == "block" ? 1 : variant.variant == "two_pass" ? 2 : 0);
    EXPECT_EQ(variant.best_us, variant.variant == "block" ? 100 : 0) << "of other rows tells nothing";
    EXPECT_LE(variant.configs, variant.points);
  }
}

TEST(Explain, KnowsHowManyWarpsFit) {
  std::vector<Config> block = configs("block");
  const auto warps = [&](int registers) {
    return explain_all({measured(block[0], {100}, 0, registers)}).finalists[0].resident_warps;
  };
  const int each = block[0].warps;
  EXPECT_EQ(warps(0), 0) << "unknown";
  EXPECT_EQ(warps(128), 16 / each * each) << "65536 registers / (128 x 32)";
  EXPECT_EQ(warps(24), std::min(64, 32 * each) / each * each) << "2048 threads, or 32 blocks";
  // A device whose text cannot be read.
  const std::vector<Measurement> one{measured(block[0], {100}, 0)};
  const auto why = explain(one, {key().problem, "another device"}, problem());
  EXPECT_EQ(why->finalists[0].resident_warps, 0);
  EXPECT_TRUE(why->coverage.empty());
}

}  // namespace
}  // namespace ce::tuner
