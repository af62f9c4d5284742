// The gradient of hidden states, from exponentials x weight in f32: times the row's factor, and with the target's part. A block
// makes a row.
//
// Moves 2 reads + 1 write of [rows, columns], one of the reads in f32.
#pragma once
#include "linear/exponentials/rows.cuh"

CE_KERNEL(ce_linear_hidden_gradient, ce::problem::threads) {
  using namespace ce;
  constexpr int threads = problem::threads, unroll = 4;
  for (int64 row = block_index(); row < arguments.call.rows; row += block_count()) {
    const float of_row = arguments.row_factor[row], of_target = arguments.target_factor[row];
    const int64 index = class_of(arguments, row);
    const bool counts = index < arguments.call.classes;
    const problem::Input* const weight = weight_of_class(arguments, counts ? index : 0);
    const float* const product = arguments.product + row * arguments.columns;
    auto* const gradient =
        static_cast<problem::Input*>(arguments.hidden_grad) + row * arguments.hidden_grad_stride;
    each_column<threads, unroll>(arguments.columns, [&](int64 first) {
      float x[unroll], w[unroll];
#pragma unroll
      for (int i = 0; i < unroll; ++i)
        if (const int64 column = first + i * threads; column < arguments.columns) {
          x[i] = load_element<Load::cs>(product + column);
          w[i] = counts ? to_float(load_element<Load::ca>(weight + column)) : 0.f;
        }
#pragma unroll
      for (int i = 0; i < unroll; ++i)
        if (const int64 column = first + i * threads; column < arguments.columns) {
          // A row that is ignored has no gradient, whatever the weight holds; one without a class has NaN.
          const float value = counts ? multiply_add(of_row, x[i], of_target * w[i]) : of_row;
          store_element<Store::wb>(gradient + column, from_float<problem::Input>(value));
        }
    });
  }
}
