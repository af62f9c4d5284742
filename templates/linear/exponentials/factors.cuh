// The factors that turn the exponentials of a row into the gradient of its logits, including all options of the loss:
//
//     gradient[j] = row_factor exponential[j], and for the target, whose exponential is 0, target_factor
//
// Exponentials are made relative to the maximum of the whole row, which replaces the reference. Each thread processes a
// row.
//
// Bound by the latency of its launch.
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

/// The factors of operations/cross_entropy.cuh.
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

}  // namespace ce

CE_KERNEL(ce_linear_factors, ce::problem::threads) {
  using namespace ce;
  const int64 row = block_index() * problem::threads + thread_index();
  if (row >= arguments.call.rows) return;
  const Factors factors = factors_of(arguments, row);
  arguments.row_factor[row] = factors.of_row;
  arguments.target_factor[row] = factors.of_target;
  arguments.reference[row] = factors.max;
}
