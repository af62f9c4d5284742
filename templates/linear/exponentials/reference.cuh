// What the exponentials of a row begin to be taken with respect to: its target's logit, which is no larger than the row's
// largest; the first class's where the row has no target. A warp makes that one product of each row.
//
// Moves 2 reads of [rows, columns].
#pragma once
#include "linear/exponentials/rows.cuh"

CE_KERNEL(ce_linear_reference, ce::problem::threads) {
  using namespace ce;
  constexpr int warps = problem::threads / lanes, unroll = 8;
  const int64 row = block_index() * warps + warp_index();
  if (row >= arguments.call.rows) return;
  const int64 index = class_of(arguments, row);
  const problem::Input* const hidden = hidden_of(arguments, row);
  const problem::Input* const weight = weight_of_class(arguments, index < arguments.call.classes ? index : 0);
  float sums[unroll] = {};
  for (int64 first = lane_index(); first < arguments.columns; first += lanes * unroll)
#pragma unroll
    for (int i = 0; i < unroll; ++i)
      if (const int64 column = first + i * lanes; column < arguments.columns)
        sums[i] = multiply_add(to_float(load_element<Load::ca>(hidden + column)),
                               to_float(load_element<Load::ca>(weight + column)), sums[i]);
#pragma unroll
  for (int width = unroll / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
  const float logit = warp_sum(sums[0]);
  if (lane_index() == 0) arguments.reference[row] = Logits(arguments.call).of_target(logit).u;
}
