// Multiplies hidden states by the factors of their rows: exponentials^T x the result is the gradient of the weight
// without the targets' contribution. Also rescales exponentials of tiles with another maximum than their row's, which
// few rows need. Each block processes a row.
//
// Moves 1 read + 1 write of [rows, columns].
#pragma once
#include "linear/exponentials/rows.cuh"

namespace ce {

/// Multiplies the exponentials of a tile.
CE_DEVICE void scale_tile(const LinearExponentialsArguments& arguments, int64 row, int64 tile, float factor) {
  const int64 first = tile * arguments.tile_columns, end = first + arguments.tile_columns;
  auto* const exponentials =
      static_cast<problem::Input*>(arguments.exponentials) + row * arguments.exponentials_stride;
  for (int64 column = first + thread_index(); column < end && column < arguments.call.classes;
       column += problem::threads)
    exponentials[column] = from_float<problem::Input>(to_float(exponentials[column]) * factor);
}

struct Scaled {
  const problem::Input* hidden;
  problem::Input* scaled;
  float factor;

  template <int n>
  CE_DEVICE void at(int64 column) const {
    auto columns = Columns<n>::read(hidden, column);
    // A row that does not count adds nothing, whatever it holds.
#pragma unroll
    for (float& x : columns.x) x = factor == 0.f ? 0.f : factor * x;
    columns.write(scaled, column);
  }
};

}  // namespace ce

CE_KERNEL(ce_linear_scale, ce::problem::threads) {
  using namespace ce;
  constexpr int threads = problem::threads;
  const int64 row = block_index();
  // With too many tokens the result must be wrong visibly: the gradient of the weight becomes NaN, whichever rows there
  // are.
  const bool exceeded = arguments.counted != nullptr && *arguments.counted > arguments.limit;
  const float max = arguments.reference[row], factor = exceeded ? not_a_number() : arguments.row_factor[row];
  const auto max_of = [&](int64 tile) { return arguments.maxima[tile * arguments.call.rows + row]; };
  if (arguments.raised[row] != 0) {
    const Exponent exponent(max, exponent_of_e * Logits(arguments.call).unit());
    for (int64 tile = 0; tile < arguments.tiles; ++tile)
      if (max_of(tile) < max)
        scale_tile(arguments, row, tile, Exponent::power(exponent.exponent_of_maximum(max_of(tile))));
  }

  if (arguments.scaled_hidden == nullptr) return;
  auto* const scaled = static_cast<problem::Input*>(arguments.scaled_hidden) + row * arguments.scaled_stride;
  each_column<threads>(arguments.columns, thread_index(), true,
                       Scaled{hidden_of(arguments, row), scaled, factor});
}
