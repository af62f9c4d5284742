// The statistics that kernels/gemm/statistics.cuh leaves of a row, for those who read them.
#pragma once
#include "operations/logits.cuh"
#include "operations/shard.cuh"
#include "operations/target.cuh"

namespace ce {

using Stats = SoftmaxStats<cross_entropy_stats(true, false, problem::smoothing, problem::weights,
                                               problem::indices, problem::moment)>;
using Shard = ShardStatistics<Stats, true, problem::softcap>;

}  // namespace ce
