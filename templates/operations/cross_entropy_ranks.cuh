// Cross entropy with classes spread over ranks: the additions to the operation of one rank.
//
// Three operations replace it: `shard` writes the statistics of a rank's columns, `merge` computes the results of rows
// from those of all ranks, and a backward operation reads the merged statistics. Alternatively one operation replaces
// it whose kernels exchange statistics while they run (exchange.cuh).
#pragma once
#include "operations/cross_entropy.cuh"
#include "operations/exchange.cuh"

namespace ce {

struct CrossEntropyOfRanks : CrossEntropy {
  using Shard = ShardStatistics<Stats, has_target, problem::softcap>;

  using CrossEntropy::CrossEntropy;
  /// If ranks exchange statistics: called by whole warps before the first row, and by one thread after the last.
  CE_DEVICE static void begin_rows(const Arguments& arguments) {
    if constexpr (problem::exchanges) Exchange(arguments).begin();
  }
  CE_DEVICE static void end_rows(const Arguments& arguments) {
    if constexpr (problem::exchanges) Exchange(arguments).end();
  }
  CE_DEVICE void finalize(const Stats& found) {
    if constexpr (problem::shard)
      total.stats.assign(found);
    else if constexpr (problem::from_statistics)
      finalize_row(take_target(merged()));
    else
      finalize_row(take_target(Exchange(arguments).template receive<Shard>(row, exponent_factor())));
  }
  /// Sends the statistics of this rank's columns, which finalize() of all ranks receives. By whole warps.
  CE_DEVICE void send_statistics(const Stats& found) const {
    uint32 words[Shard::words];
    own_statistics(found).put(words);
    Exchange(arguments).send(row, words);
  }
  CE_DEVICE void store_row_results() const {
    if constexpr (!problem::shard) return CrossEntropy::store_row_results();
    if (leader) own_statistics(total.stats).put(statistics_out());
  }

 private:
  /// The statistics of all ranks.
  CE_DEVICE Shard merged() const {
    Shard all = Shard::merged(arguments, row, exponent_factor());
    if (problem::merges && leader && arguments.statistics_out != nullptr) all.put(statistics_out());
    return all;
  }
  CE_DEVICE Stats take_target(const Shard& all) {
    u_target = all.u_target;
    target_slope = all.slope;
    return all.stats;
  }
  /// Writes the statistics of this rank's columns for the other ranks.
  CE_DEVICE Shard own_statistics(const Stats& found) const {
    Shard own;
    if (!dead || needs_all_rows) own.stats.assign(found);
    if (target != nowhere) own.u_target = u_target, own.slope = target_slope;
    own.name_classes(arguments);
    return own;
  }
  CE_DEVICE uint32* statistics_out() const {
    return arguments.statistics_out + row * arguments.statistics_words;
  }
};

static_assert(RowOperation<CrossEntropyOfRanks>);

}  // namespace ce
