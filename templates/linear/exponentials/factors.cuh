// What the exponentials of a row are multiplied by to become the gradient of its logits, with everything that the loss has:
//
//     gradient[j] = row_factor exponential[j], and for the target, whose exponential is 0, target_factor
//
// and hidden states multiplied by the row's factor, so that exponentials^T x scaled hidden states is the gradient of the
// weight but for the targets' part. A block makes a row. Where the tiles of a row were taken with respect to other maxima than
// that of the whole row, it brings their exponentials to that one.
//
// Moves 1 read + 1 write of [rows, columns].
#pragma once
#include "linear/exponentials/rows.cuh"

namespace ce {

struct Factors {
  float of_row, of_target, max;
};

CE_DEVICE float upstream_of(const LinearExponentialsArguments& arguments, int64 row) {
  const auto* const upstream = static_cast<const problem::Upstream*>(arguments.call.upstream);
  return upstream == nullptr ? 1.f : to_float(upstream[row * arguments.upstream_step]);
}

/// As operations/cross_entropy.cuh has them.
CE_DEVICE Factors factors_of(const LinearExponentialsArguments& arguments, int64 row) {
  const ce::Arguments& call = arguments.call;
  const Logits logits(call);
  const float c = exponent_of_e * logits.unit();
  const Shard all = Shard::merged(call, row, c);
  const int64 target = target_of(call, row);
  if (target == call.ignore_index) return {0.f, 0.f, all.stats.max};
  if (class_of(arguments, row) == call.classes) return {not_a_number(), not_a_number(), all.stats.max};
  const Exponent exponent(all.stats.max, c);
  const float own = Exponent::power(exponent_of(exponent, all.u_target)), sum = all.stats.sum + own;
  const float share = 1.f / sum, q_target = own * share, others = all.stats.sum * share;

  const float per_row = call.divisor == nullptr ? 1.f : 1.f / *call.divisor;
  const float factor = call.row_weight == nullptr ? 1.f : call.row_weight[row];
  const float hard = upstream_of(arguments, row) * logits.scale * factor * per_row;
  float rest = call.lse_upstream == nullptr ? 0.f : call.lse_upstream[row] * logits.scale;
  if constexpr (problem::z_loss) {
    const float lse = logits.unit() * all.stats.max + log(exponent.relative(sum));
    rest += 2.f * call.amounts[problem::z_loss_amount] * lse * hard;
  }
  const float amplitude = hard + rest;
  const float at_target =
      q_target > 0.5f ? rest * q_target - hard * others : multiply_add(amplitude, q_target, -hard);
  return {amplitude * share, at_target * all.slope, all.stats.max};
}

/// The exponentials of a tile, with respect to another maximum.
CE_DEVICE void bring_tile(const LinearExponentialsArguments& arguments, int64 row, int64 tile, float factor) {
  const int64 first = tile * arguments.tile_columns, end = first + arguments.tile_columns;
  auto* const exponentials =
      static_cast<problem::Input*>(arguments.exponentials) + row * arguments.exponentials_stride;
  for (int64 column = first + thread_index(); column < end && column < arguments.call.classes;
       column += problem::threads)
    exponentials[column] = from_float<problem::Input>(to_float(exponentials[column]) * factor);
}

}  // namespace ce

CE_KERNEL(ce_linear_factors, ce::problem::threads) {
  using namespace ce;
  constexpr int threads = problem::threads, unroll = 4;
  Factors& factors = shared_memory<Factors>();
  for (int64 row = block_index(); row < arguments.call.rows; row += block_count()) {
    if (thread_index() == 0) {
      factors = factors_of(arguments, row);
      arguments.row_factor[row] = factors.of_row;
      arguments.target_factor[row] = factors.of_target;
    }
    block_barrier();
    const float of_row = factors.of_row;
    const Exponent exponent(factors.max, exponent_of_e * Logits(arguments.call).unit());
    block_barrier();
    for (int64 tile = 0; tile < arguments.tiles; ++tile)
      if (const float max = arguments.maxima[tile * arguments.call.rows + row]; max < exponent.max)
        bring_tile(arguments, row, tile, Exponent::power(exponent.exponent_of_maximum(max)));

    if (arguments.scaled_hidden == nullptr) continue;
    const problem::Input* const hidden = hidden_of(arguments, row);
    auto* const scaled =
        static_cast<problem::Input*>(arguments.scaled_hidden) + row * arguments.scaled_stride;
    each_column<threads, unroll>(arguments.columns, [&](int64 first) {
      float x[unroll];
#pragma unroll
      for (int i = 0; i < unroll; ++i)
        if (const int64 column = first + i * threads; column < arguments.columns)
          x[i] = to_float(load_element<Load::ca>(hidden + column));
#pragma unroll
      for (int i = 0; i < unroll; ++i)
        // A row that does not count adds nothing, whatever it holds.
        if (const int64 column = first + i * threads; column < arguments.columns)
          store_element<Store::wb>(scaled + column,
                                   from_float<problem::Input>(of_row == 0.f ? 0.f : of_row * x[i]));
    });
  }
}
