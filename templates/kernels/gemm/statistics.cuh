// Statistics of a linear layer's logits, without storing the logits: hidden x weight^T + bias, tile by tile, and for
// each tile the statistics that ranks exchange (operations/shard.cuh). A cluster processes some columns of its rows,
// one of `splits` that share them, and writes a message about each row; the variant `merge` then merges these messages
// like those of ranks.
//
// If gradients are wanted (problem::exponentials), the kernel also writes each tile's exponentials, multiplied by the
// slopes of the logits under a cap, and 0 at the target. Multiplied by a factor of the row, which is known after all of
// its tiles, they are the gradient of the logits (linear/exponentials/factors.cuh). They are relative to a given
// reference of the row, and to a larger maximum only if they would otherwise become too large.
//
// The product is bound by the tensor cores. Statistics are computed from f32 sums, which are not rounded to the logits'
// dtype.
#pragma once
#include "kernels/gemm/product.cuh"
#include "kernels/gemm/row_statistics.cuh"
#include "linear_statistics_arguments.cuh"

using Arguments = ce::LinearStatisticsArguments;

namespace ce {

using LinearProduct =
    Product<problem::Input, problem::tile_columns, problem::stages, problem::cluster, problem::turns>;
constexpr ProductTile product_tile = LinearProduct::tile;

/// The index of this warpgroup among those that multiply.
CE_DEVICE int multiplier_index() { return thread_index() / product_tile.warpgroup; }

/// A thread's statistics of a row, for its own columns.
class RowOfThread {
 public:
  CE_DEVICE RowOfThread(const LinearStatisticsArguments& arguments, const Logits& logits, int64 row)
      : arguments_(arguments),
        row_(row),
        exists_(row < arguments.call.rows),
        logits_(logits.of_row(problem::row_scales && exists_ ? arguments.call.row_scale[row] : 1.f)) {
    const int64 target = exists_ ? target_of(arguments.call, row) : -1;
    target_ = target >= 0 && target < arguments.call.classes ? int(target) : nowhere;
    if constexpr (problem::exponentials) {
      has_gradient_ = target_ != nowhere && target != arguments.call.ignore_index;
      if (exists_) shard_.stats.max = arguments.reference[row];
    }
  }

  /// \param sums   sums of the tile; those that must not count any more are -infinity afterwards
  /// \param first  first column of the tile
  template <int second>
  CE_DEVICE void add(float (&sums)[product_tile.sums_of_thread()], int first) {
    constexpr int count = product_tile.sums_of_row();
    const auto sum = [&](int i) -> float& { return sums[product_tile.place_of(second, i)]; };
    const auto offset = [](int i) { return product_tile.column_of(0, i); };
    const int own = first + product_tile.column_of(thread_index(), 0);
    const int classes = int(arguments_.call.classes) - own;  // number of classes from the own column on
    const auto class_of = [&](int i) { return own + (offset(i) < classes ? offset(i) : classes - 1); };

    if constexpr (problem::bias)
      if (classes > 0) {
#pragma unroll
        for (int i = 0; i < count; ++i)
          sum(i) += to_float(
              load_element<Load::ca>(static_cast<const problem::Bias*>(arguments_.bias) + class_of(i)));
      }
    if (classes <= offset(count - 1)) {
#pragma unroll
      for (int i = 0; i < count; ++i)
        if (offset(i) >= classes) sum(i) = -infinity();
    }
    Stats& stats = shard_.stats;
    if constexpr (Stats::indices) {
#pragma unroll
      for (int i = 0; i < count; ++i) {
        if (sum(i) > -infinity()) stats.observe(sum(i), own + offset(i));
        if (sum(i) != sum(i)) stats.observe_nan(own + offset(i));
      }
    }
    const int position = target_ - own;
    const bool has_target = position >= 0 && position <= offset(count - 1) && position % 8 < 2;
    if (has_target) {
      float logit = 0.f;
#pragma unroll
      for (int i = 0; i < count; ++i)
        if (position == offset(i)) logit = sum(i);
      const Transformed target = logits_.of_target(logit);
      shard_.u_target = target.u;
      shard_.slope = target.slope;
    }
    if constexpr (problem::softcap) {
#pragma unroll
      for (int i = 0; i < count; ++i) sum(i) = offset(i) < classes ? logits_.of(sum(i)) : -infinity();
    }

    float largest = stats.max, other = -infinity();
#pragma unroll
    for (int i = 0; i < count; i += 2) {
      largest = maximum(largest, sum(i));
      other = maximum(other, sum(i + 1));
    }
    const float c = factor();
    raise(maximum(largest, other));
    const Exponent exponent(stats.max, c);
    if constexpr (Stats::dots)
      if (classes > 0) {
#pragma unroll
        for (int i = 0; i < count; ++i) {
          const float weight = offset(i) < classes ? weight_of(arguments_.call, class_of(i)) : 0.f;
          stats.dot.value += weigh(weight, exponent.logarithm(sum(i)));
          stats.weight.value += weight;
        }
      }
    if (has_target) {
#pragma unroll
      for (int i = 0; i < count; ++i)
        if (position == offset(i)) sum(i) = -infinity();
    }
    float powers[2] = {}, moments[2] = {};
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float of_base = exponent.either(sum(i)), power = Exponent::power(of_base);
      powers[i % 2] += power;
      if constexpr (problem::moment) moments[i % 2] += moment_of(power, of_base);
      if constexpr (problem::exponentials)
        sum(i) = problem::softcap ? power * HyperbolicTangent::slope_of(at_least(sum(i), -1.f)) : power;
    }
    stats.sum += powers[0] + powers[1];
    add_moment(stats, moments[0] + moments[1]);
    if constexpr (problem::exponentials) put_exponentials<second>(sums, first);
  }

  /// Merges the statistics of all lanes that share the row.
  CE_DEVICE void merge_lanes() {
    shard_.stats = warp_merge<neighbours>(shard_.stats, factor());
#pragma unroll
    for (int mask = 1; mask < neighbours; mask *= 2) {
      const float u = shuffle_xor(shard_.u_target, mask), slope = shuffle_xor(shard_.slope, mask);
      if (!(u <= shard_.u_target) && shard_.u_target == shard_.u_target) {
        shard_.u_target = u;
        shard_.slope = slope;
      }
    }
  }
  /// Writes the message, and neutral messages for splits that the band does not have.
  CE_DEVICE void put(const ProductSchedule::Part& part) {
    const Arguments& call = arguments_.call;
    if (!exists_) return;
    for (int64 split = part.split; split < arguments_.splits; split += part.splits) {
      const int64 message =
          split * product_tile.messages() + (product_tile.messages() > 1 ? multiplier_index() : 0);
      shard_.put(call.statistics_out + (message * call.rows + row_) * call.statistics_words);
      shard_ = {};
    }
  }

 private:
  using Arguments = ce::Arguments;
  static constexpr int neighbours = 4;  ///< lanes that share a row

  CE_DEVICE float factor() const { return exponent_of_e * logits_.unit(); }
  /// Raises the maximum of the statistics to the largest logit of a tile.
  CE_DEVICE void raise(float largest) {
    Stats& stats = shard_.stats;
    const float c = factor();
    if constexpr (!problem::exponentials) return stats.rescale(largest, c);
    // The bound keeps the powers of exponents, their sums and products with hidden states far from the limits of f32.
    // All lanes of a row have the same maximum.
    constexpr float most = 32.f;
    const auto is_far = [&](float logit) { return (logit - stats.max) * c > most; };
    if (!any_lane(is_far(largest))) return;
    const float of_row = warp_max<neighbours>(largest);
    if (!is_far(of_row)) return;
    stats.rescale(of_row, c);
    if (exists_) arguments_.raised[row_] = 1;
  }
  /// Writes a tile's sums to memory. A lane has two of each eight neighbouring columns: it collects all eight of one
  /// group in four from its neighbours, and gives them its columns of the other groups.
  template <int second>
  CE_DEVICE void put_exponentials(const float (&sums)[product_tile.sums_of_thread()], int first) {
    constexpr int groups = product_tile.sums_of_row() / 2;
    const int lane = thread_index() % neighbours;
    auto* const row =
        static_cast<problem::Input*>(arguments_.exponentials) + row_ * arguments_.exponentials_stride;
#pragma unroll
    for (int group = 0; group < groups; group += neighbours) {
      uint32 word[neighbours];
#pragma unroll
      for (int i = 0; i < neighbours; ++i) {
        const int at = 2 * (group + i);
        const uint32 pair = pack<problem::Input>(sums[product_tile.place_of(second, at)],
                                                 sums[product_tile.place_of(second, at + 1)]);
        word[i] = has_gradient_ ? pair : 0;
      }
#pragma unroll
      for (int mask = 1; mask < neighbours; mask *= 2)
#pragma unroll
        for (int i = 0; i < neighbours; ++i)
          if ((i & mask) == 0) {
            const bool upper = (lane & mask) != 0;
            const uint32 received = shuffle_xor(upper ? word[i] : word[i + mask], mask);
            if (upper)
              word[i] = received;
            else
              word[i + mask] = received;
          }
      const int column = first + 8 * (group + lane);
      if (!exists_ || column >= arguments_.exponentials_stride) continue;
      store<Store::cs>(reinterpret_cast<Words<neighbours>*>(row + column),
                       Words<neighbours>{{word[0], word[1], word[2], word[3]}});
    }
    if (exists_ && lane == 0)
      arguments_.maxima[first / product_tile.columns * arguments_.call.rows + row_] = shard_.stats.max;
  }
  template <class OfRow>
  CE_DEVICE static void add_moment(OfRow& stats, float moment) {
    if constexpr (OfRow::moments) stats.moment += moment;
  }

  const LinearStatisticsArguments& arguments_;
  const int64 row_;
  const bool exists_;
  const Logits logits_;
  int target_;
  bool has_gradient_ = false;
  Shard shard_;
};

/// Both rows of a thread, for each block of rows.
template <int blocks>
struct RowsOfThread {
  RowsOfThread<blocks - 1> before;
  RowOfThread upper, lower;

  CE_DEVICE RowsOfThread(const LinearStatisticsArguments& arguments, const Logits& logits, int64 row)
      : before(arguments, logits, row),
        upper(arguments, logits, row + (blocks - 1) * product_tile.rows_at_once),
        lower(arguments, logits, row + (blocks - 1) * product_tile.rows_at_once + product_tile.second_row) {}
  template <class Sums>
  CE_DEVICE void add(Sums& sums, int column) {
    before.add(sums, column);
    upper.template add<0>(sums[blocks - 1], column);
    lower.template add<1>(sums[blocks - 1], column);
  }
  CE_DEVICE void put(const ProductSchedule::Part& part) {
    before.put(part);
    upper.merge_lanes();
    lower.merge_lanes();
    if (lane_index() % 4 != 0) return;
    upper.put(part);
    lower.put(part);
  }
};
template <>
struct RowsOfThread<0> {
  CE_DEVICE RowsOfThread(const LinearStatisticsArguments&, const Logits&, int64) {}
  template <class Sums>
  CE_DEVICE void add(Sums&, int) {}
  CE_DEVICE void put(const ProductSchedule::Part&) {}
};

}  // namespace ce

CE_PRODUCT_KERNEL(ce_linear_statistics, ce::ProductTile::threads) {
  using namespace ce;
  constexpr int cluster = problem::cluster;
  const ProductSchedule schedule{.rows = arguments.call.rows,
                                 .columns = arguments.call.classes,
                                 .tile_rows = cluster * product_tile.rows,
                                 .tile_columns = product_tile.columns,
                                 .clusters = int(block_count() / cluster),
                                 .group = arguments.group};
  const int64 of_all = block_index() / cluster;
  const int rank = cluster > 1 ? cluster_rank() : 0;
  LinearProduct product(arguments.operands);
  const auto row_of_block = [&](int64 row_tile) {
    return row_tile * schedule.tile_rows + rank * product_tile.rows;
  };

  if (product.loads()) {
    product.begin_loading();
    for (int64 band = 0; band < schedule.bands(); ++band) {
      const ProductSchedule::Part part = schedule.part_of(of_all, band);
      if (part.is_none()) continue;
      for (int64 along = part.first_column; along < schedule.column_tiles(); along += part.splits)
        product.load(row_of_block(part.row_tile), along * product_tile.columns);
    }
  } else {
    product.begin_multiplying();
    const Logits logits(arguments.call);
    constexpr int apart = product_tile.rows_apart();
    const int own = multiplier_index() * apart + product_tile.row_of(thread_index() % product_tile.warpgroup);
    int64 tile = 0;
    for (int64 band = 0; band < schedule.bands(); ++band) {
      const ProductSchedule::Part part = schedule.part_of(of_all, band);
      if (part.is_none()) continue;
      RowsOfThread<product_tile.row_blocks()> rows(arguments, logits, row_of_block(part.row_tile) + own);
      for (int64 along = part.first_column; along < schedule.column_tiles(); along += part.splits) {
        if (!product.multiplies(tile++)) {
          product.skip();
          continue;
        }
        const int64 column = along * product_tile.columns;
        float sums[product_tile.row_blocks()][product_tile.sums_of_thread()];
        product.multiply(sums, row_of_block(part.row_tile), column);
        rows.add(sums, int(column));
      }
      rows.put(part);
    }
  }
  product.end();
}
