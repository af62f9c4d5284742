// The division of a product into tiles, and their layout in shared memory and in registers: arithmetic that the kernel,
// its generator and its tests share.
#pragma once
#include "row/layout.cuh"

namespace ce {

/// The tiles of a product of 16-bit matrices [rows, k] x [columns, k]^T on Hopper's tensor cores. A block computes one
/// tile after the other. Two warpgroups multiply; a third one loads. Either each computes half of the rows of every
/// tile, or they take turns: one multiplies while the other processes the sums of its own tile.
struct ProductTile {
  int columns;  ///< of a tile: 128, 192 or 256
  int stages;   ///< stages of the ring, each of `depth` elements of k
  int cluster;  ///< blocks with tiles below each other, which load the columns' operand once for all
  bool turns;   ///< whether the warpgroups take turns

  static constexpr int multipliers = 2, rows_at_once = 64, rows = multipliers * rows_at_once;
  static constexpr int warpgroup = 128, threads = (multipliers + 1) * warpgroup;
  static constexpr int depth = 64;            ///< 128 bytes, the widest swizzle
  static constexpr int depth_once = 16;       ///< elements of k in one instruction
  static constexpr int swizzle_bytes = 1024;  ///< eight rows of 128 bytes, the alignment of every operand

  CE_HOST_DEVICE constexpr int row_bytes() const { return rows * depth * 2; }
  CE_HOST_DEVICE constexpr int column_bytes() const { return columns * depth * 2; }
  CE_HOST_DEVICE constexpr int stage_bytes() const { return row_bytes() + column_bytes(); }
  /// The ring, wherever shared memory begins, and two mbarriers for each stage; one more for each warpgroup that takes
  /// turns.
  CE_HOST_DEVICE constexpr int shared_bytes() const {
    return swizzle_bytes + stages * (stage_bytes() + 2 * 8) + (turns ? multipliers * 8 : 0);
  }
  /// Number of blocks of `rows_at_once` rows that a warpgroup computes in a tile, below each other.
  CE_HOST_DEVICE constexpr int row_blocks() const { return turns ? multipliers : 1; }
  /// Rows from the first one of a multiplying warpgroup to that of the next.
  CE_HOST_DEVICE constexpr int rows_apart() const { return turns ? 0 : rows_at_once; }
  /// Messages about a row: one from each warpgroup that computes tiles of it.
  CE_HOST_DEVICE constexpr int messages() const { return turns ? multipliers : 1; }
  /// Number of warpgroups that read a stage.
  CE_HOST_DEVICE constexpr int readers() const { return turns ? 1 : multipliers; }
  /// Number of sums that a thread holds for a block of rows: two rows, eight apart; of each eight columns two
  /// neighbours.
  CE_HOST_DEVICE constexpr int sums_of_thread() const { return columns / 2; }
  CE_HOST_DEVICE constexpr int sums_of_row() const { return columns / 4; }

  /// The first row of a thread, within its warpgroup. The second one is `second_row` below.
  CE_HOST_DEVICE static constexpr int row_of(int thread) { return thread / 32 * 16 + thread % 32 / 4; }
  static constexpr int second_row = 8;
  /// The column of the i-th sum of a thread in a row; four neighbouring lanes share its rows.
  CE_HOST_DEVICE static constexpr int column_of(int thread, int i) {
    return i / 2 * 8 + thread % 4 * 2 + i % 2;
  }
  /// The index of that sum among all its sums.
  CE_HOST_DEVICE static constexpr int place_of(int second, int i) { return i / 2 * 4 + second * 2 + i % 2; }
};

/// Assigns tiles to clusters. The tiles form bands of at most `group` rows of tiles; all clusters finish a band before
/// the next. In a band, clusters with the same row of tiles share its columns, one of `splits` each. So concurrent
/// clusters read few rows of both operands, which stay in L2.
struct ProductSchedule {
  long long rows, columns;  ///< size of the product
  int tile_rows;            ///< rows of a cluster's tiles
  int tile_columns;
  int clusters;
  int group;

  /// A cluster's tiles in a band.
  struct Part {
    long long row_tile;
    int split;               ///< index among those that share the row of tiles
    int splits;              ///< the step from one tile to the next
    long long first_column;  ///< first tile; if there is no such column, the part is empty

    /// Whether the band has no tiles for the cluster.
    CE_HOST_DEVICE constexpr bool is_none() const { return split >= splits; }
  };

  CE_HOST_DEVICE constexpr long long row_tiles() const { return (rows + tile_rows - 1) / tile_rows; }
  CE_HOST_DEVICE constexpr long long column_tiles() const {
    return (columns + tile_columns - 1) / tile_columns;
  }
  CE_HOST_DEVICE constexpr long long bands() const { return (row_tiles() + group - 1) / group; }
  /// The rows of tiles are divided evenly.
  CE_HOST_DEVICE constexpr long long first_row_tile(long long band) const {
    return row_tiles() * band / bands();
  }
  CE_HOST_DEVICE constexpr int rows_of(long long band) const {
    return int(first_row_tile(band + 1) - first_row_tile(band));
  }
  CE_HOST_DEVICE constexpr int splits_of(long long band) const {
    const long long each = clusters / rows_of(band) > 1 ? clusters / rows_of(band) : 1;
    return int(each < column_tiles() ? each : column_tiles());
  }
  /// The largest number of splits in any band.
  CE_HOST_DEVICE constexpr int most_splits() const {
    int most = 1;
    for (long long band = 0; band < bands(); ++band) most = most < splits_of(band) ? splits_of(band) : most;
    return most;
  }
  /// Bands alternate in which of the clusters that share a row gets one more tile than others.
  CE_HOST_DEVICE constexpr Part part_of(long long cluster, long long band) const {
    const int of_band = rows_of(band), splits = splits_of(band), split = int(cluster / of_band);
    const long long more = column_tiles() % splits;
    return {first_row_tile(band) + cluster % of_band, split, splits, (split + band * more) % splits};
  }
};

}  // namespace ce
