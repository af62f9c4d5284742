// Sums of the columns of a matrix, in f32: the gradient of a bias from that of the logits. Each thread processes a
// column, with a few sums in parallel, so that neighbouring threads read neighbouring elements.
#pragma once
#include "linear_arguments.cuh"

using Arguments = ce::LinearArguments;

CE_KERNEL(ce_linear_column_sums, ce::problem::threads) {
  using namespace ce;
  constexpr int unroll = problem::unroll;
  const int64 column = block_index() * problem::threads + thread_index();
  if (column >= arguments.columns) return;
  const problem::Element* at = static_cast<const problem::Element*>(arguments.input) + column;
  float sums[unroll] = {};
  int64 row = 0;
  for (; row + unroll <= arguments.rows; row += unroll)
#pragma unroll
    for (int i = 0; i < unroll; ++i) {
      sums[i] += to_float(load_element<Load::ca>(at));
      at += arguments.stride;
    }
  for (; row < arguments.rows; ++row) {
    sums[0] += to_float(load_element<Load::ca>(at));
    at += arguments.stride;
  }
#pragma unroll
  for (int width = unroll / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
  float* const output = static_cast<float*>(arguments.output) + column;
  *output = arguments.accumulates != 0 ? *output + sums[0] : sums[0];
}
