// What ranks that share the classes tell each other about a row.
//
// Each rank holds the logits of some neighbouring classes, its shard, and leaves a few words about each row:
//
//     target logit    class indices: u (logits.cuh), and its slope under a cap; -infinity where another shard has it
//     maximum, sum    of the exponentials of the shard, without the target's
//     dot, weight     with smoothing or probabilities
//     moment          where somebody asks for the entropy
//     largest, index  where somebody asks for the argmax, among the classes of all shards
//
// An all-gather puts the words of all ranks in the order of these, and in that order every rank merges them: so all
// come to the same bits. What is merged has the same form.
#pragma once
#include "arguments.cuh"
#include "row/stats.cuh"

namespace ce {

template <class Stats, bool has_target, bool has_slope>
struct ShardStatistics {
  Stats stats;
  float u_target = -infinity(), slope = 1.f;

  struct Put {
    uint32* to;
    template <class T>
    CE_DEVICE void operator()(T value) {
      put_bits(*to++, value);
    }
  };
  struct Get {
    const uint32* from;
    template <class T>
    CE_DEVICE void operator()(T& value) {
      get_bits(*from++, value);
    }
  };
  template <class Visit>
  CE_DEVICE void each(Visit&& visit) {
    if constexpr (has_target) visit(u_target);
    if constexpr (has_target && has_slope) visit(slope);
    visit(stats.max), visit(stats.sum);
    if constexpr (Stats::dots) stats.dot.each(visit), stats.weight.each(visit);
    if constexpr (Stats::moments) visit(stats.moment);
    if constexpr (Stats::indices) visit(stats.largest), visit(stats.argmax);
  }

  /// By one thread, of a row of this rank's columns: they become classes.
  CE_DEVICE void publish(const Arguments& arguments, int64 row) {
    if constexpr (Stats::indices)
      if (stats.argmax != no_column) stats.argmax += int(arguments.first_class);
    put(arguments, row);
  }
  CE_DEVICE void put(const Arguments& arguments, int64 row) {
    each(Put{arguments.statistics_out + row * arguments.statistics_words});
  }
  /// Of the row in all shards.
  /// \param c  the factor of the exponents
  CE_DEVICE static ShardStatistics merged(const Arguments& arguments, int64 row, float c) {
    ShardStatistics all;
#pragma unroll 1
    for (int64 rank = 0; rank < arguments.ranks; ++rank) {
      ShardStatistics of_rank;
      of_rank.each(Get{arguments.statistics + (rank * arguments.rows + row) * arguments.statistics_words});
      all.stats.merge(of_rank.stats, c);
      // NaN stays, whichever comes first.
      if (!(of_rank.u_target <= all.u_target) && all.u_target == all.u_target) {
        all.u_target = of_rank.u_target;
        all.slope = of_rank.slope;
      }
    }
    return all;
  }
};

}  // namespace ce
