// Tuner::likely_configs(): what to run where nothing may be tried.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "generator/source.hpp"
#include "runtime/host/device.hpp"
#include "tests/environment.hpp"
#include "tests/tuner/fixture.hpp"
#include "tuner/ranking.hpp"

namespace ce::test {
namespace {

using cache::Measurement;
using generator::Config;
using generator::Problem;

class LikelyConfig : public testing::Test {
 protected:
  [[nodiscard]] static Problem wide(std::int64_t columns, std::int64_t rows = 64) {
    Problem problem = small_problem();
    problem.columns = columns;
    problem.rows = rows;
    return problem;
  }
  [[nodiscard]] Measurement measured(const Problem& problem, const Config& config) const {
    return {.key = tuner.key(problem),
            .config = to_text(config),
            .template_digest = generator::template_digest(problem.operation, config.variant),
            .rows = problem.rows,
            .bytes = 4 * problem.rows * problem.columns,
            .samples_us = {1},
            .median_us = 1};
  }
  void know(const Problem& problem, const Config& config) { database.add(measured(problem, config)); }
  /// For the problem that is asked about; nothing where nothing is near.
  [[nodiscard]] std::optional<Config> likely() const {
    const std::vector<Config> first = tuner.likely_configs(asked, 1);
    return first.empty() ? std::nullopt : std::optional(first.front());
  }

  /// The n-th config of the known problem's space that the other problem takes, or refuses.
  [[nodiscard]] Config config_of(const Problem& known, const Problem& other, bool taken,
                                 std::size_t nth = 0) const {
    for (const Config& config : generator::space(known, limits)) {
      const bool takes = !generator::variant(config.variant).rejects(config, other, limits);
      if (takes == taken && nth-- == 0) return config;
    }
    throw std::runtime_error("the space has no such config");
  }

  std::unique_ptr<runtime::Device> device = runtime::open_host_device();
  cache::Cache database = cache::Cache::in_memory();
  tuner::Tuner tuner{*device, database, quick_settings()};
  generator::Limits limits = tuner::limits_of(device->model());
  const Problem asked = wide(1000);
};

TEST_F(LikelyConfig, NothingIsNear) { EXPECT_EQ(likely(), std::nullopt); }

TEST_F(LikelyConfig, NeighboursComeNearestFirst) {
  const auto known_by = [&](const Problem& problem) { know(problem, config_of(problem, problem, true)); };
  for (const Problem& problem : {wide(8000), wide(1000, 1 << 16), wide(1024), wide(1000, 256), wide(500)})
    known_by(problem);
  const std::vector<tuner::Neighbour> near = tuner::neighbours(*device, database, asked, 4);
  ASSERT_EQ(near.size(), 4);
  EXPECT_EQ(near[0].problem.columns, 1024);
  EXPECT_EQ(near[1].problem.columns, 500);
  EXPECT_EQ(near[2].problem.rows, 256);
  EXPECT_EQ(near[3].problem.columns, 8000);
  EXPECT_NEAR(near[3].distance, 3, 1e-12) << "octaves";
  ASSERT_EQ(near[0].losses.size(), 1);
  EXPECT_EQ(near[0].losses[0].second, 0) << "it won";
}

TEST_F(LikelyConfig, WhatWonNextDoorWins) {
  const Config winner = config_of(wide(1008), asked, true);
  know(wide(1008), winner);
  EXPECT_EQ(likely(), winner);
}

TEST_F(LikelyConfig, WhatDoesNotFitIsPassedOver) {
  const Config unfit = config_of(wide(200), asked, false);
  know(wide(200), unfit);
  const auto winner = likely();
  ASSERT_TRUE(winner);
  EXPECT_FALSE(generator::variant(winner->variant).rejects(*winner, asked, limits));
}

TEST_F(LikelyConfig, IsNotWhatLostNearby) {
  const Config usual = tuner::safe_default(asked, device->model());
  Measurement winner = measured(wide(1024), config_of(wide(1024), asked, true)),
              loser = measured(wide(1024), usual);
  ASSERT_NE(winner.config, loser.config);
  loser.median_us = 2 * winner.median_us;
  database.add(winner);
  database.add(loser);
  EXPECT_NE(likely(), usual);
}

TEST_F(LikelyConfig, ProblemsThatMoveOtherMemoryAreNotNear) {
  const Config config = config_of(asked, asked, true);
  Problem other = asked;
  other.dtype = DType::bf16;
  know(other, config);
  other = asked;
  other.strided = true;
  know(other, config);
  other = asked;
  other.operation = generator::Operation::softmax_backward;
  know(other, config);
  other = asked;
  other.operation = generator::Operation::cross_entropy;
  know(other, config);
  EXPECT_EQ(likely(), std::nullopt);
  other = asked;
  other.operation = generator::Operation::copy;
  EXPECT_FALSE(tuner::distance_between(other, asked)) << "nothing but traffic";
  other = asked;
  other.dtype = size_of(asked.dtype) == 2 ? DType::f32 : DType::bf16;
  EXPECT_FALSE(tuner::distance_between(other, asked)) << "another number of bytes";
  Problem loss = asked, backward = asked;
  loss.operation = generator::Operation::cross_entropy;
  backward.operation = generator::Operation::cross_entropy_backward;
  loss.gradient = backward.gradient = true;
  EXPECT_FALSE(tuner::distance_between(loss, backward)) << "whose rows are read but once";
}

TEST_F(LikelyConfig, AProblemIsNoNeighbourOfItsOwn) {
  know(asked, config_of(asked, asked, true));
  EXPECT_TRUE(tuner::neighbours(*device, database, asked).empty());
}

TEST_F(LikelyConfig, ThoseOfLowerLayersAreHeardOnce) {
  const Folder folder;
  const ScopedEnvironment site("CE_SITE_DB", (folder.path() / "site.db").string()),
      no_system("CE_SYSTEM_DB", "none");
  const Config own = config_of(wide(1024), asked, true), other = config_of(wide(1024), asked, true, 1);
  {
    cache::Cache database_of_site = cache::Cache::open(folder.path() / "site.db");
    database_of_site.add(measured(wide(1024), other));
    database_of_site.add(measured(wide(500), other));
  }
  cache::Cache layered = cache::Cache::open_layered(folder.path() / "ce.db");
  layered.add(measured(wide(1024), own));
  const std::vector<tuner::Neighbour> near = tuner::neighbours(*device, layered, asked);
  ASSERT_EQ(near.size(), 2);
  EXPECT_EQ(near[0].losses.at(0).first, own) << "the user's goes before the site's";
  EXPECT_EQ(near[1].problem.columns, 500);
}

TEST_F(LikelyConfig, AWinnerOfTheUsersOwnComesBeforeThatOfTheSite) {
  const Folder folder;
  const ScopedEnvironment site("CE_SITE_DB", (folder.path() / "site.db").string()),
      no_system("CE_SYSTEM_DB", "none");
  const auto final_of = [&](std::size_t nth) {
    Measurement measurement = measured(asked, config_of(asked, asked, true, nth));
    measurement.stage = cache::stage_of_finals;
    return measurement;
  };
  cache::Cache::open(folder.path() / "site.db").add(final_of(1));
  cache::Cache layered = cache::Cache::open_layered(folder.path() / "ce.db");
  const tuner::Tuner beside(*device, layered, quick_settings());
  EXPECT_EQ(beside.known_winner(asked).value().winner.text(), final_of(1).config);
  layered.add(final_of(0));
  EXPECT_EQ(beside.known_winner(asked).value().winner.text(), final_of(0).config);
}

TEST_F(LikelyConfig, WhatWasMeasuredSinceItsQuarantineIsTried) {
  const Config config = tuner.untried(asked).ranked.front();
  const auto is_first = [&] { return tuner.untried(asked).ranked.front() == config; };
  Measurement refused = measured(asked, config);
  refused.outcome = cache::Outcome::quarantined;
  refused.created_at = "2030-01-01T00:00:00.000Z";
  database.add(refused);
  EXPECT_FALSE(is_first());
  Measurement since = measured(asked, config);
  since.created_at = "2030-01-02T00:00:00.000Z";
  database.add(since);
  EXPECT_TRUE(is_first());
}

/// Its templates are those of its own operation.
TEST_F(LikelyConfig, AnotherOperationThatMovesTheSameMemoryIsNear) {
  Problem other = asked;
  other.operation = generator::Operation::cross_entropy;
  other.gradient = true;
  ASSERT_TRUE(tuner::distance_between(other, asked));
  const Config winner = config_of(other, asked, true, 1);
  ASSERT_NE(generator::template_digest(other.operation, winner.variant),
            generator::template_digest(asked.operation, winner.variant));
  know(other, winner);
  EXPECT_EQ(tuner::neighbours(*device, database, asked).size(), 1);
  EXPECT_TRUE(likely());
}

TEST_F(LikelyConfig, WhatDiffersIsFarther) {
  Problem a = wide(1024);
  a.dtype = DType::f16;
  const auto to = [&a](auto change) {
    Problem b = a;
    change(b);
    return tuner::distance_between(a, b);
  };
  EXPECT_EQ(to([](Problem&) {}), 0);
  EXPECT_EQ(to([](Problem& b) { b.columns = 4096, b.rows *= 2; }), 3);
  const auto dtype = to([](Problem& b) { b.dtype = DType::bf16; });
  const auto alignment = to([](Problem& b) { b.alignment = generator::Alignment::shifted; });
  const auto operation = to([](Problem& b) {
    b.operation = generator::Operation::cross_entropy;
    b.gradient = true;
  });
  EXPECT_GT(dtype, 0);
  EXPECT_GT(alignment, 0);
  EXPECT_GT(operation, dtype);
  a.operation = generator::Operation::cross_entropy;
  a.gradient = true;
  EXPECT_EQ(to([](Problem& b) { b.has.softcap = true; }), 8);
  EXPECT_EQ(to([](Problem& b) { b.has.smoothing = b.weights = true; }), 8) << "as eight octaves";
}

TEST_F(LikelyConfig, RowsThatWereTimedCount) {
  Measurement measurement = measured(wide(1024), config_of(wide(1024), asked, true));
  measurement.rows = 16;  // memory was short
  database.add(measurement);
  const std::vector<tuner::Neighbour> other = tuner::neighbours(*device, database, wide(2048, 64));
  ASSERT_EQ(other.size(), 1);
  EXPECT_EQ(other[0].problem.rows, 16);
  EXPECT_EQ(other[0].distance, 3);
}

/// A key stands for all rows of its bucket.
TEST_F(LikelyConfig, BucketsOfRowsAreHeldAgainstEachOther) {
  for (const Problem& problem : {wide(1000, 32), wide(1024, 64)})
    know(problem, config_of(problem, problem, true));
  const std::vector<tuner::Neighbour> near = tuner::neighbours(*device, database, wide(1000, 33), 1);
  ASSERT_EQ(near.size(), 1);
  EXPECT_EQ(near[0].problem.columns, 1024);
}

TEST_F(LikelyConfig, TimesOfOtherRowsThanTheWinnersAreNotHeard) {
  const Problem known = wide(1024);
  know(known, config_of(known, asked, true));
  Measurement short_of_memory = measured(known, config_of(known, asked, true, 1));
  short_of_memory.rows = 1;
  short_of_memory.median_us = 0.5;
  Measurement lucky = measured(known, config_of(known, asked, true, 2));
  lucky.median_us = 0.5;
  Measurement winner = measured(known, config_of(known, asked, true));
  winner.stage = short_of_memory.stage = cache::stage_of_finals;
  for (Measurement* measurement : {&winner, &lucky}) measurement->rows = 64;
  for (const Measurement& measurement : {winner, short_of_memory, lucky}) database.add(measurement);
  const std::vector<tuner::Neighbour> near = tuner::neighbours(*device, database, asked);
  ASSERT_EQ(near.size(), 1);
  ASSERT_EQ(near[0].losses.size(), 2);
  for (const auto& [config, loss] : near[0].losses) EXPECT_EQ(loss, 0) << to_text(config);
}

TEST_F(LikelyConfig, AnotherDeviceIsNotAsked) {
  Measurement measurement = measured(wide(1024), config_of(wide(1024), asked, true));
  measurement.key.device = "NVIDIA H200|cc=90";
  database.add(measurement);
  EXPECT_EQ(likely(), std::nullopt);
}

TEST_F(LikelyConfig, HistoryAndWithdrawnWinnersAreNoAnswer) {
  Measurement old = measured(wide(1024), config_of(wide(1024), asked, true));
  old.template_digest = "0123";
  database.add(old);
  Measurement withdrawn = measured(wide(900), config_of(wide(900), asked, true));
  database.add(withdrawn);
  withdrawn.outcome = cache::Outcome::quarantined;
  withdrawn.reason = "wrong answer";
  database.add(withdrawn);
  EXPECT_EQ(likely(), std::nullopt);
}

TEST_F(LikelyConfig, KeysOfAnotherVersionArePassedOver) {
  Measurement foreign = measured(wide(1000), config_of(wide(1000), asked, true));
  foreign.key.problem = "softmax f8 cols=1000 blocks=2 l2=warm";
  database.add(foreign);
  EXPECT_EQ(likely(), std::nullopt);
  const Config known = config_of(wide(1024), asked, true);
  know(wide(1024), known);
  EXPECT_EQ(likely(), known);
}

}  // namespace
}  // namespace ce::test
