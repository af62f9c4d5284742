// Which tiles of a product each cluster makes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "templates/product_layout.cuh"
#include "tests/seed.hpp"

namespace ce::test {
namespace {

struct Made {
  std::map<std::pair<std::int64_t, std::int64_t>, int> tiles;     ///< how often, by row and column
  std::map<std::pair<std::int64_t, std::int64_t>, int> messages;  ///< by row tile and split
};

Made made_by(const ProductSchedule& schedule) {
  Made made;
  const int most = schedule.most_splits();
  for (std::int64_t cluster = 0; cluster < schedule.clusters; ++cluster)
    for (std::int64_t band = 0; band < schedule.bands(); ++band) {
      const ProductSchedule::Part part = schedule.part_of(cluster, band);
      if (part.is_none()) continue;
      for (std::int64_t along = part.first_column; along < schedule.column_tiles(); along += part.splits)
        ++made.tiles[{part.row_tile, along}];
      for (int split = part.split; split < most; split += part.splits)
        ++made.messages[{part.row_tile, split}];
    }
  return made;
}

void expect_each_once(const ProductSchedule& schedule) {
  SCOPED_TRACE(fmt::format("{} x {} in tiles of {} x {}, {} clusters, group {}", schedule.rows,
                           schedule.columns, schedule.tile_rows, schedule.tile_columns, schedule.clusters,
                           schedule.group));
  const Made made = made_by(schedule);
  EXPECT_EQ(made.tiles.size(), schedule.row_tiles() * schedule.column_tiles());
  for (const auto& [tile, count] : made.tiles) EXPECT_EQ(count, 1) << tile.first << ", " << tile.second;
  EXPECT_EQ(made.messages.size(), schedule.row_tiles() * schedule.most_splits());
  for (const auto& [message, count] : made.messages)
    EXPECT_EQ(count, 1) << message.first << ", " << message.second;
}

TEST(ProductSchedule, MakesEachTileAndLeavesEachMessageOnce) {
  for (const int group : {1, 6, 11, 66})
    for (const std::int64_t rows : {1, 256, 4096, 8192, 16384, 16385})
      expect_each_once({.rows = rows,
                        .columns = 32000,
                        .tile_rows = 256,
                        .tile_columns = 192,
                        .clusters = 66,
                        .group = group});
}

TEST(ProductSchedule, DoesSoForAnySizes) {
  std::mt19937_64 random(test_seed());
  const auto below = [&](int most) { return std::uniform_int_distribution<int>(1, most)(random); };
  for (int i = 0; i < 500; ++i) {
    const int clusters = below(70);
    expect_each_once({.rows = below(5000),
                      .columns = below(5000),
                      .tile_rows = 128 * below(2),
                      .tile_columns = 64 * below(4),
                      .clusters = clusters,
                      .group = below(clusters)});
  }
}

TEST(ProductSchedule, SharesOutTheRowsOfTilesEvenly) {
  constexpr ProductSchedule schedule{
      .rows = 8192, .columns = 128256, .tile_rows = 256, .tile_columns = 256, .clusters = 66, .group = 6};
  static_assert(schedule.bands() == 6 && schedule.most_splits() == 13);
  std::set<int> rows;
  for (std::int64_t band = 0; band < schedule.bands(); ++band) rows.insert(schedule.rows_of(band));
  EXPECT_EQ(rows, (std::set{5, 6}));
}

}  // namespace
}  // namespace ce::test
