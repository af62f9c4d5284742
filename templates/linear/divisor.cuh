// The divisor of a mean over all chunks: the number of rows that are not ignored, or the sum of the weights of their
// targets. Uses one block, and sums in a fixed order.
//
// The z-loss is divided by the number of rows in any case. Where there are both weights and a z-loss, the divisor is that
// number, and every weight is multiplied by number / sum of weights, which makes the same mean.
#pragma once
#include "linear_arguments.cuh"

using Arguments = ce::LinearArguments;

namespace ce {

struct DivisorShared {
  double weight[problem::threads];
  int64 count[problem::threads];
};

}  // namespace ce

CE_KERNEL(ce_linear_divisor, ce::problem::threads) {
  using namespace ce;
  const int own = thread_index();
  const auto weight_of = [&](int64 column) {
    return to_float(load_element<Load::ca>(static_cast<const problem::Weight*>(arguments.weight) + column));
  };
  int64 count = 0;
  double weight = 0;
  if constexpr (problem::probabilities) {
    if (own == 0) count = arguments.rows;
  } else {
    for (int64 row = own; row < arguments.rows; row += problem::threads) {
      const int64 target = static_cast<const problem::Target*>(arguments.target)[row];
      if (target == arguments.ignore_index) continue;
      ++count;
      // A target that is no class has no weight: its loss is NaN anyway.
      if constexpr (problem::weights)
        if (target >= 0 && target < arguments.columns) weight += weight_of(target);
    }
  }
  DivisorShared& shared = shared_memory<DivisorShared>();
  shared.count[own] = count;
  shared.weight[own] = weight;
  block_barrier();
  for (int half = problem::threads / 2; half > 0; half /= 2) {
    if (own < half) {
      shared.count[own] += shared.count[own + half];
      shared.weight[own] += shared.weight[own + half];
    }
    block_barrier();
  }
  constexpr bool by_weight = problem::weights && !problem::probabilities && !problem::scales;
  if (own == 0) *arguments.divisor = by_weight ? float(shared.weight[0]) : float(shared.count[0]);
  if constexpr (problem::scales) {
    const double factor = double(shared.count[0]) / shared.weight[0];
    for (int64 column = own; column < arguments.columns; column += problem::threads)
      arguments.scaled_weight[column] = float(weight_of(column) * factor);
  }
}
