// The form of the statistics that kernels/gemm/statistics.cuh writes for a row.
#pragma once
#include "operations/logits.cuh"
#include "operations/shard.cuh"
#include "operations/target.cuh"

namespace ce {

using Stats = SoftmaxStats<cross_entropy_stats(true, false, problem::smoothing, problem::weights,
                                               problem::indices, problem::moment)>;
using Shard = ShardStatistics<Stats, true, problem::softcap>;

}  // namespace ce
