// The statistics of a row that ranks that share the classes exchange.
//
// Each rank holds the logits of some neighbouring classes, its shard, and writes a few words for each row:
//
//     target logit    class indices: u (logits.cuh), and its slope under a cap; -infinity where another shard has it
//     maximum, sum    of the exponentials of the shard, without the target's
//     dot, weight     with smoothing or probabilities
//     moment          where the caller asks for the entropy
//     largest, index  where the caller asks for the argmax, among the classes of all shards
//
// An all-gather concatenates the words of all ranks in their order, and every rank merges them in that order: so all
// get the same bits. Merged statistics have the same form.
#pragma once
#include "arguments.cuh"
#include "row/stats.cuh"

namespace ce {

template <class Stats, bool has_target, bool has_slope>
struct ShardStatistics {
  Stats stats;
  float u_target = -infinity(), slope = 1.f;

  static constexpr int words = Stats::words + (has_target ? 1 + int(has_slope) : 0);

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

  /// Converts this rank's columns to classes.
  CE_DEVICE void name_classes(const Arguments& arguments) {
    if constexpr (Stats::indices)
      if (stats.argmax != no_column) stats.argmax += int(arguments.first_class);
  }
  CE_DEVICE void put(uint32* to) { each(Put{to}); }
  CE_DEVICE static ShardStatistics read(const uint32* from) {
    ShardStatistics statistics;
    statistics.each(Get{from});
    return statistics;
  }
  CE_DEVICE static ShardStatistics not_a_number() {
    ShardStatistics statistics;
    statistics.u_target = statistics.stats.sum = ce::not_a_number();
    return statistics;
  }
  /// Merges the statistics of the next rank.
  /// \param c  the factor of the exponents
  CE_DEVICE void merge(const ShardStatistics& of_rank, float c) {
    stats.merge(of_rank.stats, c);
    // NaN stays, whichever comes first.
    if (!(of_rank.u_target <= u_target) && u_target == u_target) {
      u_target = of_rank.u_target;
      slope = of_rank.slope;
    }
  }
  /// The statistics of the row over all shards.
  /// \param c  the factor of the exponents
  CE_DEVICE static ShardStatistics merged(const Arguments& arguments, int64 row, float c) {
    ShardStatistics all;
#pragma unroll 1
    for (int64 rank = 0; rank < arguments.ranks; ++rank)
      all.merge(read(arguments.statistics + (rank * arguments.rows + row) * arguments.statistics_words), c);
    return all;
  }
};

}  // namespace ce
