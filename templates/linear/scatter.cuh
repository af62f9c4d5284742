// Scatters gathered rows back to their tokens: those with the numbers `first` to `first + rows`. The launch with number
// 0 also sets tokens without a number to `fill`; if more tokens count than the caller has said, all become
// `fill_of_excess`.
//
// Moves 1 read + 1 write, and is bound by the memory.
#pragma once
#include "linear/unit.cuh"

using Arguments = ce::LinearArguments;

CE_KERNEL(ce_linear_scatter, ce::problem::threads) {
  using namespace ce;
  using Unit = ce::Unit<problem::unit_bytes>;
  const bool exceeded = is_exceeded(arguments);
  const int64 units = arguments.tokens * arguments.columns;
  for (int64 i = block_index() * problem::threads + thread_index(); i < units;
       i += block_count() * problem::threads) {
    const int64 token = i / arguments.columns, column = i - token * arguments.columns;
    const int64 number = arguments.numbers[token], row = number - arguments.first;
    const bool is_here = row >= 0 && row < arguments.rows, is_left_out = number < 0 && arguments.first == 0;
    if (!is_here && !is_left_out && !exceeded) continue;
    const auto data = exceeded  ? Unit::filled(uint64(arguments.fill_of_excess))
                      : is_here ? Unit::read(arguments.input, row * arguments.stride + column)
                                : Unit::filled(uint64(arguments.fill));
    Unit::write(arguments.output, token * arguments.output_stride + column, data);
  }
}
