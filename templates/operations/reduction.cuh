// How the reductions `mean` and `sum` of cross entropy count and end, in the kernel of the rows (fused_sums.cuh) and in
// kernels of their own (loss_sum.cuh).
#pragma once
#include "operations/target.cuh"

namespace ce {

/// Whether a mean of losses is divided by counted rows, not by a divisor of the caller.
constexpr bool counts_rows = problem::mean && !problem::divisor;
/// Whether a mean is divided by weights instead of rows.
constexpr bool weighted_mean = counts_rows && problem::weights && !problem::probabilities;

/// Whether the losses in the workspace show which rows count: others have -0. Then no kernel has to read all targets
/// again.
constexpr bool losses_mark_counted = counts_rows && !weighted_mean && !problem::probabilities;
/// A comparison turns a loss of -0 into 0. Adding 0 would be fused with the preceding multiplication by a weight, whose
/// product is -0 if it underflows.
CE_DEVICE float loss_to_sum(float loss, bool counts) { return !counts ? -0.f : loss == 0.f ? 0.f : loss; }
CE_DEVICE bool is_of_counted_row(float loss) {
  uint32 bits;
  put_bits(bits, loss);
  return bits != 0x80000000u;
}

/// Rows that count, and the sum of the weights of their targets.
struct Counted {
  int64 rows = 0;
  float weight = 0.f;
};

/// The sums over all rows, as used by the kernel of the rows: it waits for ce_count, and stores losses for ce_sum
/// (loss_sum.cuh).
/// \tparam are_fused  it counts and adds up itself, in fused_sums.cuh
template <bool are_fused>
struct SumsOf {
  CE_DEVICE static Counted counted(const Arguments& a) {
    step_wait();
    return {a.workspace->count, a.workspace->weight};
  }
  CE_DEVICE static void add(const Arguments&, bool) {}
};

CE_DEVICE bool is_counted(const Arguments& arguments, int64 row) {
  if constexpr (problem::probabilities) return true;
  return target_of(arguments, row) != arguments.ignore_index;
}

/// A target that is no class has no weight: its loss is NaN anyway.
CE_DEVICE float counted_weight(const Arguments& arguments, int64 row) {
  const int64 target = target_of(arguments, row);
  const bool counts = target != arguments.ignore_index && target >= 0 && target < class_count(arguments);
  return counts ? weight_of(arguments, target) : 0.f;
}

/// Writes the results from the sums over all rows, and prepares the workspace for the next call. By one thread.
/// \param counted  used for a mean
CE_DEVICE void put_sums(const Arguments& arguments, float loss, float z_loss, const Counted& counted) {
  if constexpr (problem::divisor) {
    loss /= *arguments.divisor;
    z_loss /= *arguments.divisor;
  } else if constexpr (problem::mean) {
    loss /= weighted_mean ? counted.weight : float(counted.rows);
    z_loss /= float(counted.rows);
  }
  *static_cast<problem::Loss*>(arguments.loss) =
      from_float<problem::Loss>(problem::z_loss ? loss + z_loss : loss);
  if constexpr (problem::z_loss_out) *problem::z_loss_out_of(arguments) = from_float<problem::Loss>(z_loss);
  arguments.workspace->finished = 0;
}

}  // namespace ce
