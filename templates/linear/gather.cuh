// Gathers rows of some tokens. A row without a token is `fill`; if more tokens count than the caller has said, all rows
// are NaN. Without `places`, rows keep their positions.
//
// Moves 1 read + 1 write, and is bound by the memory.
#pragma once
#include "linear/unit.cuh"

using Arguments = ce::LinearArguments;

CE_KERNEL(ce_linear_gather, ce::problem::threads) {
  using namespace ce;
  using Unit = ce::Unit<problem::unit_bytes>;
  const bool exceeded = is_exceeded(arguments);
  const int64 units = arguments.rows * arguments.columns;
  for (int64 i = block_index() * problem::threads + thread_index(); i < units;
       i += block_count() * problem::threads) {
    const int64 row = i / arguments.columns, column = i - row * arguments.columns;
    const int64 place = arguments.places == nullptr ? row : arguments.places[row];
    const auto data = exceeded ? Unit::filled(~uint64(0))
                      : place < arguments.tokens
                          ? Unit::read(arguments.input, place * arguments.stride + column)
                          : Unit::filled(uint64(arguments.fill));
    Unit::write(arguments.output, row * arguments.output_stride + column, data);
  }
}
