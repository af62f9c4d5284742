// The reference to which the exponentials of a row are first relative: its target's logit, which is at most the row's
// largest logit; the first class's logit if the row has no target. A warp computes that one product of each row. Its
// terms are added in another order than those of the tiles, so the largest possible rounding difference is subtracted.
//
// Moves 2 reads of [rows, columns].
#pragma once
#include "linear/exponentials/rows.cuh"

namespace ce {

struct Dot {
  const problem::Input *hidden, *weight;
  float sums[4] = {}, magnitudes[4] = {};

  template <int n>
  CE_DEVICE void at(int64 column) {
    const auto x = Columns<n>::read(hidden, column), w = Columns<n>::read(weight, column);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      sums[i] = multiply_add(x.x[i], w.x[i], sums[i]);
      magnitudes[i] = multiply_add(absolute(x.x[i]), absolute(w.x[i]), magnitudes[i]);
    }
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
  const auto total = [](const float(&of)[4]) { return warp_sum((of[0] + of[1]) + (of[2] + of[3])); };
  const float logit = total(dot.sums), rounded = 0x1p-13f * total(dot.magnitudes);
  if (lane_index() != 0) return;
  // If the reference is not finite, the first tile's maximum replaces it.
  arguments.reference[row] =
      is_finite(rounded) ? Logits(arguments.call).of_target(logit - rounded).u : -infinity();
  arguments.raised[row] = 0;
}
