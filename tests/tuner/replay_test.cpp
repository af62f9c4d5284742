// Searches replayed on what an H200 and an H100 measured: a change of the ranking or of a strategy that loses shows here.
#include "bench/lab/replay/replay.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <vector>

#include "bench/lab/replay/fit.hpp"
#include "ce/error.hpp"
#include "tests/environment.hpp"
#include "tests/seed.hpp"
#include "tuner/kernel.hpp"

namespace ce::test {
namespace {

using tuner::Strategy;

/// What the shipped weights are fitted to, in the order of the files' names.
replay::Recording recording() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(CE_RECORDINGS))
    if (entry.path().filename().string().starts_with("searches-")) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return replay::load(files);
}

/// Searches of each problem: more of them with CE_FULL_TESTS.
std::uint64_t searches(std::uint64_t full) { return is_required("CE_FULL_TESTS") ? full : 1; }

/// Tests that take long run one time in four, each by its own draw, or with CE_FULL_TESTS always.
bool runs(std::size_t number) { return is_drawn(test_seed(), number, 4); }
constexpr const char* not_drawn = "not drawn; CE_FULL_TESTS=1 runs each";

/// The same seeds in every run: bars at the 95th percentile are no place for luck.
replay::Summary replayed(const replay::Recording& recording, Strategy strategy, tuner::Breadth breadth = {}) {
  std::vector<replay::Score> scores;
  for (const replay::RecordedProblem& problem : recording.problems) {
    const replay::Simulator simulator(problem);
    for (std::uint64_t seed = 1; seed <= searches(2); ++seed) {
      breadth.strategy = strategy;
      breadth.seed = seed;
      scores.push_back(simulator.search(breadth, seed));
    }
  }
  const replay::Summary summary = replay::summary_of(scores);
  fmt::print("{}: median {:.2f}%, p95 {:.2f}%, worst {:.2f}%, {:.0f} configs, {:.0f} ms\n",
             tuner::name(strategy), 100 * summary.median, 100 * summary.p95, 100 * summary.worst,
             summary.tried, summary.device_ms);
  return summary;
}

TEST(Replay, HalvingFindsNearlyTheBestOfEveryProblemAtAFractionOfTheCost) {
  if (!runs(0)) GTEST_SKIP() << not_drawn;
  replay::Recording recorded = recording();
  ASSERT_GE(recorded.problems.size(), 60);
  const replay::Summary halving = replayed(recorded, Strategy::halving),
                        random = replayed(recorded, Strategy::random);
  EXPECT_LE(halving.median, 0.003);
  EXPECT_LE(halving.p95, 0.01);
  EXPECT_LE(halving.worst, 0.05);
  EXPECT_LT(halving.p95, random.p95);
  EXPECT_LE(halving.tried, 1.05 * random.tried);
  // Without any search: the config that the ranking puts first.
  EXPECT_GE(halving.first_median, 0.85);

  // What it saves shows where (nearly) all configs were recorded, not only the most promising ones.
  std::erase_if(recorded.problems, [&](const replay::RecordedProblem& problem) {
    return problem.configs.size() <
           9 * generator::space(problem.problem, tuner::limits_of(problem.model)).size() / 10;
  });
  ASSERT_GE(recorded.problems.size(), 60);
  // And in what the two do not have in common: nearly without rounds in turns.
  const tuner::Breadth screening{.semifinalists = 2, .finalists = 2, .play_off = {}, .decider = {}};
  const replay::Summary on_all = replayed(recorded, Strategy::halving, screening),
                        exhaustive = replayed(recorded, Strategy::exhaustive, screening);
  EXPECT_LT(on_all.tried, 0.18 * exhaustive.tried);
  EXPECT_LT(on_all.device_ms, 0.3 * exhaustive.device_ms);
}

/// What is drawn is the noise of samples, on medians that are taken to be true. Searches that leave nothing out are
/// 0.5% apart at the 95th percentile and up to 1.0%. Those that are farthest apart are of a few microseconds.
TEST(Replay, WinnersOfTenSearchesAreHardlyApart) {
  const replay::Recording recorded = recording();
  std::vector<double> apart;
  for (const replay::RecordedProblem& problem : recorded.problems) {
    const replay::Simulator simulator(problem);
    for (std::uint64_t search = 0; search < searches(3); ++search)
      apart.push_back(simulator.apart({}, 1 + 10 * search));
  }
  fmt::print("ten searches: median {:.2f}%, p95 {:.2f}%, worst {:.2f}%\n", 100 * replay::quantile(apart, 0.5),
             100 * replay::quantile(apart, 0.95), 100 * replay::quantile(apart, 1));
  EXPECT_LE(replay::quantile(apart, 0.5), 0.002);
  EXPECT_LE(replay::quantile(apart, 0.95), 0.007);
  EXPECT_LE(replay::quantile(apart, 0.99), 0.018);
  EXPECT_LE(replay::quantile(apart, 1), 0.035);
}

/// A problem's own measurements are seen by neither the weights nor the neighbours that its config is guessed with.
/// Searches of neighbours differ by their samples, so there are several of each.
TEST(Replay, NeighboursTellWhatIsFastForProblemsThatNobodyTuned) {
  if (!runs(1)) GTEST_SKIP() << not_drawn;
  const replay::Recording recorded = recording();
  const replay::Guesser guesser(recorded);
  std::vector<double> heavy;  // tuned by halving
  const auto look = [&](replay::Tuned tuned, const char* name, std::uint64_t seeds) {
    std::vector<double> regrets;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      const std::vector<replay::Guess> guesses = guesser.guesses(tuned, seed);
      for (std::size_t i = 0; i < guesses.size(); ++i)
        if (!generator::has_costly_options(recorded.problems[i].problem))
          regrets.push_back(guesses[i].regret);
        else if (tuned == replay::Tuned::by_halving)
          heavy.push_back(guesses[i].regret);
    }
    fmt::print("neighbours tuned {}: median {:.2f}%, p95 {:.2f}%, worst {:.2f}%\n", name,
               100 * replay::quantile(regrets, 0.5), 100 * replay::quantile(regrets, 0.95),
               100 * replay::quantile(regrets, 1));
    return regrets;
  };
  const std::vector<double> exhaustive = look(replay::Tuned::exhaustively, "exhaustively", 1),
                            halving = look(replay::Tuned::by_halving, "by halving", searches(2)),
                            winners = look(replay::Tuned::by_halving_winners, "by halving, winners alone", 1);
  EXPECT_LE(replay::quantile(heavy, 0.5), 0.02) << "of weights of all classes, or a soft cap, few know";
  EXPECT_LE(replay::quantile(heavy, 1), 0.17);
  EXPECT_LE(replay::quantile(exhaustive, 0.5), 0.014);
  EXPECT_LE(replay::quantile(exhaustive, 0.95), 0.07);
  EXPECT_LE(replay::quantile(exhaustive, 1), 0.23);
  EXPECT_LE(replay::quantile(halving, 0.5), 0.014);
  EXPECT_LE(replay::quantile(halving, 0.95), 0.07);
  EXPECT_LE(replay::quantile(halving, 1), 0.18);
  EXPECT_LE(replay::quantile(winners, 0.5), 0.015);
  EXPECT_LE(replay::quantile(winners, 0.95), 0.086)
      << "many winners were recorded before there were resident and flow";
}

/// Neither the weights nor anything else have seen the problem. Where compilers are slow, half of the structures are ready
/// in time.
TEST(Replay, AFirstSearchFindsNearlyTheBest) {
  if (!runs(2)) GTEST_SKIP() << not_drawn;
  const replay::Recording recorded = recording();
  const replay::Guesser guesser(recorded);
  struct Regrets {
    std::vector<double> plain, heavy;
  };
  const auto regrets = [&](int structures) {
    Regrets found;
    for (std::uint64_t seed = 1; seed <= searches(2); ++seed) {
      const std::vector<replay::Score> scores = guesser.searches({.structures = structures}, seed);
      for (std::size_t i = 0; i < scores.size(); ++i)
        (generator::has_costly_options(recorded.problems[i].problem) ? found.heavy : found.plain)
            .push_back(scores[i].regret);
    }
    for (const auto& [values, name] : {std::pair{&found.plain, ""}, std::pair{&found.heavy, " (heavy)"}})
      fmt::print("{} structures{}: median {:.2f}%, p95 {:.2f}%, worst {:.2f}%\n", structures, name,
                 100 * replay::quantile(*values, 0.5), 100 * replay::quantile(*values, 0.95),
                 100 * replay::quantile(*values, 1));
    return found;
  };
  const int all = tuner::Breadth{}.structures;
  const Regrets whole = regrets(all), in_haste = regrets(all / 2);
  EXPECT_LE(replay::quantile(whole.plain, 0.95), 0.0075);
  EXPECT_LE(replay::quantile(whole.plain, 1), 0.03);
  EXPECT_LE(replay::quantile(whole.heavy, 1), 0.008);
  EXPECT_LE(replay::quantile(in_haste.plain, 0.95), 0.011);
  EXPECT_LE(replay::quantile(in_haste.heavy, 1), 0.008);
}

/// A problem may be recorded twice: the second time as one of which few configs were looked at.
TEST(Replay, WeightsForAProblemHaveNotSeenItsPartialRecordingEither) {
  if (!runs(3)) GTEST_SKIP() << not_drawn;
  replay::Recording recorded = recording(), without = recorded;
  const std::size_t parts = recorded.problems.size();
  const auto of_both = std::find_if(
      recorded.problems.begin(), recorded.problems.end(), [&](const replay::RecordedProblem& problem) {
        return std::erase_if(without.partial, [&](const replay::RecordedProblem& partial) {
                 return generator::key_text(partial.problem) == generator::key_text(problem.problem);
               }) > 0;
      });
  ASSERT_NE(of_both, recorded.problems.end());
  const std::size_t part =
      replay::part_numbers(recorded)[static_cast<std::size_t>(of_both - recorded.problems.begin())];
  const replay::Fitted fitted = replay::Regression(recorded).fitted_without(part, parts),
                       unseen = replay::Regression(without).fitted_without(part, parts);
  ASSERT_EQ(fitted.variants.size(), unseen.variants.size());
  double apart = 0;
  for (std::size_t variant = 0; variant < fitted.variants.size(); ++variant)
    for (std::size_t i = 0; i < fitted.variants[variant].weights.size(); ++i)
      apart = std::max(apart,
                       std::abs(fitted.variants[variant].weights[i] - unseen.variants[variant].weights[i]));
  EXPECT_LE(apart, 1e-9) << "but for rounding";
}

/// What another recording knows, and nothing else.
TEST(Replay, NeighboursMayBeThoseOfAnotherRecording) {
  replay::Recording recorded = recording();
  recorded.problems.resize(60);  // for speed; some are near to the first
  recorded.partial.clear();
  replay::Recording known{.problems = {}, .partial = {}};
  for (const replay::Guess& guess :
       replay::Guesser(recorded, known).guesses(replay::Tuned::exhaustively, 1)) {
    EXPECT_EQ(guess.regret, guess.alone);
    EXPECT_EQ(guess.nearest, 0);
  }

  known.problems.push_back(recorded.problems.front());
  const auto guesses = replay::Guesser(recorded, known).guesses(replay::Tuned::exhaustively, 1);
  EXPECT_EQ(guesses.front().nearest, 0) << "a problem is no neighbour of its own";
  EXPECT_TRUE(std::any_of(guesses.begin(), guesses.end(),
                          [](const replay::Guess& guess) { return guess.nearest > 0; }));

  known.problems.front().model.name = "Another GPU";
  for (const replay::Guess& guess : replay::Guesser(recorded, known).guesses(replay::Tuned::exhaustively, 1))
    EXPECT_EQ(guess.nearest, 0) << "what another GPU measured is no neighbour";
}

TEST(Replay, AProblemOfSeveralGpusIsLeftOutOnAllOfThem) {
  replay::Recording recorded = recording();
  recorded.problems.resize(3);
  recorded.problems.push_back(recorded.problems.front());
  recorded.problems.back().model.name = "Another GPU";
  EXPECT_THAT(replay::part_numbers(recorded), ::testing::ElementsAre(0, 1, 2, 0));
}

TEST(Replay, TheWeightsAreThoseOfTheRecording) {
  const replay::Recording recorded = recording();
  const replay::Fitted fitted = replay::Regression(recorded).fitted();
  EXPECT_GE(recorded.partial.size(), 60);
  for (const auto* problems : {&recorded.problems, &recorded.partial})
    for (const replay::RecordedProblem& problem : *problems) {
      const generator::Config& config = problem.configs.front().config;
      EXPECT_NEAR(tuner::predicted_loss(config, problem.problem, problem.model),
                  tuner::predicted_loss(config, problem.problem, problem.model, fitted.weights()), 0.01)
          << "ce_replay fit FILES > tuner/ranking_weights.hpp";
    }
}

TEST(Replay, WithoutATraitItsProductsWeighNothingEither) {
  replay::Recording recorded = recording();
  recorded.problems.resize(20);
  recorded.partial.clear();
  const auto weights = [&](const std::vector<std::string>& without) {
    return replay::Regression(recorded, replay::kept_without(without)).fitted().variants.front().weights;
  };
  const tuner::Terms all = weights({}), fewer = weights({"idle", "row*row"});
  const std::size_t products = tuner::trait_terms;
  for (std::size_t i = 0; i < all.size(); ++i) {
    bool dropped = i == tuner::trait("idle");
    if (i >= products && i < products + tuner::products.size()) {
      const auto [left, right] = tuner::products.at(i - products);
      dropped = left == tuner::trait("idle") || right == tuner::trait("idle") ||
                (left == tuner::trait("row") && right == tuner::trait("row"));
    }
    if (dropped) {
      EXPECT_EQ(fewer.at(i), 0) << i;
    } else if (all.at(i) != 0) {
      EXPECT_NE(fewer.at(i), 0) << i;
    }
  }
  try {
    static_cast<void>(replay::kept_without({"colour"}));
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("colour"));
  }
}

TEST(Replay, AProblemWithoutConfigsIsRefused) {
  const std::filesystem::path file = std::filesystem::path(::testing::TempDir()) / "recorded.txt";
  std::ofstream(file) << "device Some GPU|cc=90|sm=132\n"
                         "problem softmax bf16 cols=4096 align=vector rows<=8192 l2=cold | 8192 134217728\n";
  try {
    static_cast<void>(replay::load({file}));
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("softmax bf16 cols=4096"));
  }
}

TEST(Replay, HasTheSameWinnerForTheSameSamples) {
  const replay::Recording recorded = recording();
  const std::uint64_t seed = test_seed();
  for (std::size_t i = 0; i < recorded.problems.size(); ++i)
    if (is_drawn(seed, i, 4)) {
      EXPECT_EQ(replay::Simulator(recorded.problems[i]).search({}, 3).winner,
                replay::Simulator(recorded.problems[i]).search({}, 3).winner);
    }
}

}  // namespace
}  // namespace ce::test
