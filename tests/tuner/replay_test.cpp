// Searches replayed on what an H200 measured: a change of the ranking or of a strategy that loses shows here.
#include "bench/replay/replay.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace ce::test {
namespace {

using tuner::Strategy;

/// The newest recording.
replay::Recording recording() {
  std::filesystem::path newest;
  for (const auto& entry : std::filesystem::directory_iterator(CE_SOURCE_DIR "/bench/results"))
    if (entry.path().filename().string().starts_with("searches-") && newest < entry.path())
      newest = entry.path();
  return replay::load(newest);
}

/// The same seeds in every run: bars at the 95th percentile are no place for luck.
replay::Summary replayed(const replay::Recording& recording, Strategy strategy) {
  std::vector<replay::Score> scores;
  for (const replay::RecordedProblem& problem : recording.problems)
    for (std::uint64_t seed = 1; seed <= 2; ++seed)
      scores.push_back(replay::search(problem, recording.model, {.strategy = strategy, .seed = seed}, seed));
  const replay::Summary summary = replay::summary_of(scores);
  fmt::print("{}: median {:.2f}%, p95 {:.2f}%, worst {:.2f}%, {:.0f} configs\n", tuner::name(strategy),
             100 * summary.median, 100 * summary.p95, 100 * summary.worst, summary.tried);
  return summary;
}

TEST(Replay, HalvingFindsNearlyTheBestOfEveryProblemAtAFractionOfTheCost) {
  const replay::Recording recorded = recording();
  ASSERT_GE(recorded.problems.size(), 60);
  const replay::Summary halving = replayed(recorded, Strategy::halving),
                        random = replayed(recorded, Strategy::random),
                        exhaustive = replayed(recorded, Strategy::exhaustive);
  EXPECT_LE(halving.median, 0.005);
  EXPECT_LE(halving.p95, 0.02);
  EXPECT_LE(halving.worst, 0.05);
  EXPECT_LT(halving.tried, 0.3 * exhaustive.tried);
  EXPECT_LT(halving.p95, random.p95);
  EXPECT_LE(halving.tried, random.tried);
  // Without any search: the config that the ranking puts first.
  EXPECT_GE(halving.first_median, 0.85);
}

TEST(Replay, HasTheSameWinnerForTheSameSamples) {
  const replay::Recording recorded = recording();
  for (const replay::RecordedProblem& problem : recorded.problems)
    EXPECT_EQ(replay::search(problem, recorded.model, {}, 3).winner,
              replay::search(problem, recorded.model, {}, 3).winner);
}

}  // namespace
}  // namespace ce::test
