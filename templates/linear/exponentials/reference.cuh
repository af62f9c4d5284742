// What the exponentials of a row begin to be taken with respect to: its target's logit, which is no larger than the row's
// largest; the first class's where the row has no target. A warp makes that one product of each row.
//
// Moves 2 reads of [rows, columns].
#pragma once
#include "linear/exponentials/rows.cuh"

namespace ce {

struct Dot {
  const problem::Input *hidden, *weight;
  float sums[4] = {};

  template <int n>
  CE_DEVICE void at(int64 column) {
    const auto x = Columns<n>::read(hidden, column), w = Columns<n>::read(weight, column);
#pragma unroll
    for (int i = 0; i < n; ++i) sums[i] = multiply_add(x.x[i], w.x[i], sums[i]);
  }
};

}  // namespace ce

CE_KERNEL(ce_linear_reference, ce::problem::threads) {
  using namespace ce;
  constexpr int warps = problem::threads / lanes;
  const int64 row = block_index() * warps + warp_index();
  if (row >= arguments.call.rows) return;
  const int64 index = class_of(arguments, row);
  Dot dot{hidden_of(arguments, row), weight_of_class(arguments, index < arguments.call.classes ? index : 0)};
  each_column<lanes>(arguments.columns, lane_index(), true, dot);
  const float logit = warp_sum((dot.sums[0] + dot.sums[1]) + (dot.sums[2] + dot.sums[3]));
  if (lane_index() != 0) return;
  arguments.reference[row] = Logits(arguments.call).of_target(logit).u;
  arguments.raised[row] = 0;
}
