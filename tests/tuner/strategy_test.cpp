// What a search looks at next, told from what it has found.
#include "tuner/strategy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace ce::test {
namespace {

using testing::ElementsAre;
using tuner::Breadth;
using tuner::Entrant;
using tuner::next_round;
using tuner::Round;
using tuner::Strategy;

/// Structures of three configs each; the last ones of a ranking are the fastest.
std::vector<Entrant> field_of(std::size_t count) {
  std::vector<Entrant> entrants(count);
  for (std::size_t i = 0; i < count; ++i) entrants[i].structure = i % (count / 3);
  return entrants;
}

void measure(std::vector<Entrant>& entrants, const Round& round) {
  for (const std::size_t i : round.entrants) {
    entrants[i].median_us = static_cast<double>(1000 - i);
    entrants[i].in_turns = round.in_turns;
  }
}

constexpr Breadth small{.structures = 4,
                        .refined = 2,
                        .drawn = 5,
                        .screening_samples = 3,
                        .semifinalists = 4,
                        .semifinal_samples = 6,
                        .finalists = 2,
                        .final_samples = 15,
                        .play_off = {30, 0.01, 3},
                        .decider = {60, 0.005, 2, 0.001}};

TEST(Halving, LooksAtStructuresThenAtTheModifiersOfTheBest) {
  std::vector<Entrant> entrants = field_of(30);
  const auto first = next_round(small, 0, entrants);
  ASSERT_TRUE(first);
  EXPECT_FALSE(first->in_turns);
  EXPECT_THAT(first->entrants, ElementsAre(0, 1, 2, 3)) << "the first config of each of four structures";
  measure(entrants, *first);

  const auto second = next_round(small, 1, entrants);
  ASSERT_TRUE(second);
  EXPECT_THAT(second->entrants, ElementsAre(13, 23, 12, 22))
      << "those of 3 and 2 that are new, fastest first";
  measure(entrants, *second);

  const auto third = next_round(small, 2, entrants);
  ASSERT_TRUE(third);
  EXPECT_TRUE(third->in_turns);
  EXPECT_EQ(third->samples, 6);
  EXPECT_THAT(third->entrants, ElementsAre(23, 22, 13, 12));
  measure(entrants, *third);
  // Faster than all, but never in turns: it has no place in the final.
  entrants[0].median_us = 1;

  const auto last = next_round(small, 3, entrants);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->samples, 15);
  EXPECT_THAT(last->entrants, ElementsAre(23, 22));
}

TEST(Halving, LooksAtOneConfigOfAStructureFirst) {
  std::vector<Entrant> entrants(6);
  for (std::size_t i = 0; i < entrants.size(); ++i) entrants[i].structure = i / 2;
  const auto first = next_round(small, 0, entrants);
  ASSERT_TRUE(first);
  EXPECT_THAT(first->entrants, ElementsAre(0, 2, 4));
}

TEST(Halving, LooksAtTheMostPromisingModifiersOfTheBest) {
  std::vector<Entrant> entrants = field_of(30);
  measure(entrants, *next_round(small, 0, entrants));
  Breadth two = small;
  two.modifiers = 2;
  EXPECT_THAT(next_round(two, 1, entrants)->entrants, ElementsAre(13, 12)) << "with those looked at before";
  two.modifiers = 1;
  EXPECT_THAT(next_round(two, 1, entrants)->entrants, ElementsAre());
  two.modifiers = 2;
  entrants[23].load = 1;
  EXPECT_THAT(next_round(two, 1, entrants)->entrants, ElementsAre(23, 12))
      << "every load before a second store";
  entrants[23].load = 0;
  entrants[13].out = true;
  EXPECT_THAT(next_round(two, 1, entrants)->entrants, ElementsAre(23, 12)) << "in place of the quarantined";
}

TEST(Halving, GoesOnWithFinalistsThatAreHardlyApart) {
  std::vector<Entrant> entrants = field_of(6);
  for (Entrant& entrant : entrants) entrant = {.median_us = 101.5, .in_turns = true};
  entrants[2].median_us = 100;
  EXPECT_FALSE(next_round(small, 4, entrants)) << "the next is more than 1% behind";
  entrants[4].median_us = 100.9;
  const auto round = next_round(small, 4, entrants);
  ASSERT_TRUE(round);
  EXPECT_THAT(round->entrants, ElementsAre(2, 4));
  EXPECT_TRUE(round->in_turns);
  EXPECT_EQ(round->samples, 30);
  EXPECT_FALSE(next_round(small, 5, entrants)) << "the second is more than 0.5% behind";
  entrants[1].median_us = 100.3;
  entrants[3].median_us = 100.4;
  EXPECT_FALSE(next_round(small, 5, entrants)) << "the first is known to within 0.1%";
  entrants[2].error = 0.002;
  const auto decider = next_round(small, 5, entrants);
  ASSERT_TRUE(decider);
  EXPECT_THAT(decider->entrants, ElementsAre(2, 1)) << "two at most";
  EXPECT_EQ(decider->samples, 60);
  EXPECT_FALSE(next_round(small, 6, entrants));
  Breadth without = small;
  without.play_off.samples = 0;
  EXPECT_FALSE(next_round(without, 4, entrants));
  without.play_off.samples = small.final_samples;
  EXPECT_FALSE(next_round(without, 4, entrants)) << "all have as many samples already";
  without = small;
  without.decider.samples = small.play_off.samples;
  EXPECT_FALSE(next_round(without, 5, entrants)) << "the same";
}

/// The database may know times of what was quarantined since.
TEST(Halving, NothingQuarantinedHasTurns) {
  std::vector<Entrant> entrants = field_of(6);
  for (std::size_t i = 0; i < entrants.size(); ++i) entrants[i].median_us = static_cast<double>(10 + i);
  entrants[1].out = true;
  EXPECT_THAT(next_round(small, 2, entrants)->entrants, ElementsAre(0, 2, 3, 4));
}

TEST(Halving, GoesOnWhereItWasInterrupted) {
  std::vector<Entrant> entrants = field_of(30);
  entrants[1].median_us = 5;
  entrants[2].out = true;
  const auto round = next_round(small, 0, entrants);
  ASSERT_TRUE(round);
  EXPECT_THAT(round->entrants, ElementsAre(0, 3, 4))
      << "neither what is known nor what is quarantined, for which another structure is looked at";
}

TEST(Halving, KeepsToTheBoundOfConfigs) {
  Breadth bounded = small;
  bounded.most_configs = 3;
  std::vector<Entrant> entrants = field_of(30);
  const auto first = next_round(bounded, 0, entrants);
  ASSERT_TRUE(first);
  EXPECT_THAT(first->entrants, ElementsAre(0, 1, 2));
  measure(entrants, *first);
  const auto second = next_round(bounded, 1, entrants);
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->entrants.empty());
}

TEST(Exhaustive, LooksAtEverythingOnce) {
  Breadth all = small;
  all.strategy = Strategy::exhaustive;
  std::vector<Entrant> entrants = field_of(30);
  const auto first = next_round(all, 0, entrants);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->entrants.size(), 30);
  measure(entrants, *first);
  const auto second = next_round(all, 1, entrants);
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->in_turns);
}

TEST(Random, DrawsAsManyAsAskedTheMostPromisingAmongThem) {
  Breadth random = small;
  random.strategy = Strategy::random;
  const std::vector<Entrant> entrants = field_of(30);
  std::set<std::vector<std::size_t>> drawn;
  for (random.seed = 1; random.seed <= 5; ++random.seed) {
    const auto round = next_round(random, 0, entrants);
    ASSERT_TRUE(round);
    EXPECT_EQ(round->entrants.front(), 0);
    EXPECT_EQ(std::set(round->entrants.begin(), round->entrants.end()).size(), 5);
    EXPECT_EQ(next_round(random, 0, entrants)->entrants, round->entrants);
    drawn.insert(round->entrants);
  }
  EXPECT_GT(drawn.size(), 1);
}

TEST(Random, DrawsOthersForWhatIsQuarantined) {
  Breadth random = small;
  random.strategy = Strategy::random;
  std::vector<Entrant> entrants = field_of(30);
  for (std::size_t i = 0; i < 20; ++i) entrants[i].out = true;
  const auto round = next_round(random, 0, entrants);
  ASSERT_TRUE(round);
  EXPECT_EQ(round->entrants.size(), 5);
  EXPECT_EQ(round->entrants.front(), 20) << "the most promising that is left";
}

TEST(Strategy, ScreeningWaitsForTheMostPromisingAndForFew) {
  const Breadth breadth{.least_configs = 8};
  EXPECT_EQ(tuner::share_of_screening(breadth, 7, false), 2);
  const double usual = tuner::share_of_screening(breadth, 8, false);
  EXPECT_LT(usual, 1);
  EXPECT_GT(tuner::share_of_screening(breadth, 8, true), usual);
  EXPECT_LT(tuner::share_of_screening(breadth, 8, true), 1) << "there is time for turns";
}

TEST(Strategy, FastKernelsHaveMoreSamples) {
  EXPECT_EQ(tuner::times_as_many(1000), 1);
  EXPECT_EQ(tuner::times_as_many(100), 2);
  EXPECT_EQ(tuner::times_as_many(20), 2) << "times as many, of four launches each";
  EXPECT_EQ(tuner::times_as_many(1), 5) << "at most";
  EXPECT_EQ(tuner::launches_a_sample(30), 1);
  EXPECT_EQ(tuner::launches_a_sample(29), 4);
}

TEST(Strategy, HasANameThatIsReadBack) {
  for (const Strategy strategy : {Strategy::halving, Strategy::exhaustive, Strategy::random})
    EXPECT_EQ(tuner::parse_strategy(tuner::name(strategy)), strategy);
  EXPECT_EQ(tuner::parse_strategy("annealing"), std::nullopt);
}

}  // namespace
}  // namespace ce::test
