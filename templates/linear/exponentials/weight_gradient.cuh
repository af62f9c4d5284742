// Adds the targets' contribution to the gradient of the weight: to the row of each class the hidden states of the
// tokens with that target, times their factors, in the order of the tokens. Each block processes some columns of one
// class; it belongs to the class's first token.
//
// Moves 1 read of [rows, columns], and 1 read + 1 write of the classes that occur.
#pragma once
#include "linear/exponentials/rows.cuh"

CE_KERNEL(ce_linear_weight_gradient, ce::problem::threads) {
  using namespace ce;
  constexpr int threads = problem::threads, unroll = problem::unroll;
  const int64 parts = (arguments.columns + threads * unroll - 1) / (threads * unroll);
  const int64 place = block_index() / parts,
              first = block_index() % parts * (threads * unroll) + thread_index();
  const int* const classes = arguments.classes_in_order;
  const int64 index = classes[place];
  if (index == arguments.call.classes || (place > 0 && classes[place - 1] == index)) return;
  int64 end = place + 1;
  while (end < arguments.call.rows && classes[end] == index) ++end;

  float sums[unroll] = {};
#pragma unroll 4
  for (int64 at = place; at < end; ++at) {
    const int64 row = arguments.order[at];
    const float factor = arguments.target_factor[row];
    const problem::Input* const hidden = hidden_of(arguments, row);
#pragma unroll
    for (int i = 0; i < unroll; ++i)
      if (const int64 column = first + i * threads; column < arguments.columns)
        sums[i] = multiply_add(factor, to_float(load_element<Load::ca>(hidden + column)), sums[i]);
  }
  auto* const gradient = static_cast<problem::Gradient*>(arguments.weight_grad) + index * arguments.columns;
#pragma unroll
  for (int i = 0; i < unroll; ++i)
    if (const int64 column = first + i * threads; column < arguments.columns)
      gradient[column] = from_float<problem::Gradient>(to_float(gradient[column]) + sums[i]);
}
