#pragma once
/// \file
/// What ranks tell each other about rows (templates/operations/shard.cuh), in f64.

#include <cstdint>
#include <span>
#include <vector>

#include "generator/problem.hpp"
#include "templates/arguments.cuh"
#include "tuner/verify/reference.hpp"

namespace ce::generator {

/// Of one row of a shard. Rank by rank the words depend on the kernel that found them; this does not.
struct ShardStatistics {
  double target = 0, slope = 1;  ///< transformed logit of the target, -infinity in another shard; du/dy there
  double max = 0;                ///< largest transformed logit, that of the target with it
  double lse = 0;                ///< without the target
  double log_sum = 0;            ///< the same, less the maximum where that is finite
  double dot = 0, weight = 0;    ///< sums of w z and w, or of w p' z and w p'; with the target
  double dot_below = 0;          ///< the former of z less the maximum, in which nothing cancels
  double entropy = 0;            ///< of the classes without the target among themselves
  double largest = 0;            ///< logit
  std::int64_t argmax = 0;       ///< among the classes of all shards; less 2^31 where that logit is NaN
};

/// Of one row of `inputs`, whose columns are the classes of all shards.
/// \param first, count  the classes of the shard
[[nodiscard]] ShardStatistics shard_statistics(const CrossEntropyInputs& inputs, std::int64_t row,
                                               std::int64_t first, std::int64_t count);

/// What the logits of the row in the words are multiplied by: the cap, or the row's scale.
/// \param arguments  the amounts of the options
[[nodiscard]] float unit_of(const Problem& problem, const Arguments& arguments, double row_scale = 1);

/// The words of the row as a kernel could leave them. A quantity takes the same places in the words of every row.
[[nodiscard]] std::vector<std::uint32_t> words_of(const ShardStatistics& row, const Problem& problem,
                                                  float unit);

/// The quantities in the places of their words; 0 in a second word. What is not finite is NaN, but for -infinity.
[[nodiscard]] std::vector<double> quantities_of(const ShardStatistics& row, const Problem& problem);
/// The same from words that a kernel left.
void read_quantities(std::span<const std::uint32_t> words, const Problem& problem, float unit,
                     std::span<double> quantities);

}  // namespace ce::generator
