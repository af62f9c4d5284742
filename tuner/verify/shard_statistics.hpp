#pragma once
/// \file
/// Statistics of rows that ranks exchange (templates/operations/shard.cuh), in f64.

#include <cstdint>
#include <span>
#include <vector>

#include "generator/problem.hpp"
#include "templates/arguments.cuh"
#include "tuner/verify/reference.hpp"

namespace ce::generator {

/// Statistics of one row of a shard, independent of how a kernel encodes them as words.
struct ShardStatistics {
  double target = 0, slope = 1;  ///< the target's transformed logit, or -infinity in another shard; its du/dy
  double max = 0;                ///< largest transformed logit, target included
  double lse = 0;                ///< without the target
  double log_sum = 0;            ///< the same minus the maximum, if that is finite
  double dot = 0, weight = 0;    ///< sums of w z and w, or of w p' z and w p'; target included
  double dot_below = 0;          ///< sum of w (z - max), in which nothing cancels
  double entropy = 0;            ///< entropy of the distribution over the classes without the target
  double largest = 0;            ///< the largest logit
  std::int64_t argmax = 0;       ///< among the classes of all shards; minus 2^31 if that logit is NaN
};

/// Statistics of one row of `inputs`, whose columns are the classes of all shards.
/// \param first, count  the classes of the shard
[[nodiscard]] ShardStatistics shard_statistics(const CrossEntropyInputs& inputs, std::int64_t row,
                                               std::int64_t first, std::int64_t count);

/// The factor of a row's logits in the words: the cap, or the row's scale.
/// \param arguments  have the amounts of the options
[[nodiscard]] float unit_of(const Problem& problem, const Arguments& arguments, double row_scale = 1);

/// Words of the row as a kernel could write them. A quantity has the same index in the words of every row.
[[nodiscard]] std::vector<std::uint32_t> words_of(const ShardStatistics& row, const Problem& problem,
                                                  float unit);

/// The quantities at the indices of their words; 0 for a second word. Values that are not finite are NaN, except
/// -infinity.
[[nodiscard]] std::vector<double> quantities_of(const ShardStatistics& row, const Problem& problem);
/// Decodes words that a kernel wrote.
void read_quantities(std::span<const std::uint32_t> words, const Problem& problem, float unit,
                     std::span<double> quantities);

}  // namespace ce::generator
