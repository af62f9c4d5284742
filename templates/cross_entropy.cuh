// Cross entropy as the end of a row (the interface is described in softmax.cuh):
//
//     loss     = log(sum) + max - x[target]
//     gradient = (exp(x - max) / sum - [column == target]) * upstream
//
// with upstream 1, or 1 / (rows not ignored) for the mean, which ce_count finds beforehand (loss_sum.cuh). A row whose
// target is ignore_index has loss 0 and gradient 0; one whose target is no class has NaN in both and is noted in the
// status.
#pragma once
#include "arguments.cuh"
#include "row.cuh"
#include "statistics.cuh"
#include "target.cuh"

namespace ce {

CE_DEVICE void put_loss(const Arguments& arguments, int64 row, float value) {
  if constexpr (problem::loss_per_row)
    static_cast<problem::Loss*>(arguments.loss)[row] = from_float<problem::Loss>(value);
  else
    arguments.workspace->losses[row] = value;
}

struct Epilogue {
  static constexpr bool has_output = problem::gradient;
  const Arguments& arguments;
  int64 row, target;
  bool leader;
  float target_logit;  // of the leader
  float shift, scale, upstream;

  CE_DEVICE Epilogue(const Arguments& a, int64 r, bool l)
      : arguments(a), row(r), target(target_of(a, r)), leader(l) {
    if constexpr (!problem::loss_per_row) step_release();  // ce_sum
    // Read before anyone can overwrite it: the gradient may be written over the logits.
    if (leader && target >= 0 && target < problem::columns)
      target_logit = to_float(load_element<Load::ca>(
          row_start(static_cast<const problem::Element*>(a.input), r, a.input_stride) + target));
  }

  /// ce_count runs beside this kernel until here. Every row waits, so that this kernel never ends before it.
  CE_DEVICE void wait_for_count() const {
    if constexpr (problem::gradient && problem::mean) step_wait();
  }

  CE_DEVICE bool constant(float& value) const {
    const bool ignored = target == arguments.ignore_index;
    if (!ignored && target >= 0 && target < problem::columns) return false;
    wait_for_count();
    value = ignored ? 0.f : not_a_number();
    if (leader) {
      put_loss(arguments, row, value);
      if (!ignored) {
        atomic_add(&arguments.status->count, 1);
        atomic_min(&arguments.status->first_row, row);
      }
    }
    return true;
  }

  CE_DEVICE void settle(const Statistics& total) {
    wait_for_count();
    shift = total.max;
    upstream = 1.f;
    if constexpr (problem::gradient && problem::mean)
      upstream = 1.f / float(arguments.workspace->count);
    scale = upstream / total.sum;
    if (leader) put_loss(arguments, row, log(total.sum) - (target_logit - total.max));
  }

  template <int n>
  CE_DEVICE void apply(float (&x)[n], int column) const {
#pragma unroll
    for (int i = 0; i < n; ++i) x[i] = exp_minus(x[i], shift) * scale;
    const int hit = int(target) - column;
    if (hit >= 0 && hit < n) {
#pragma unroll
      for (int i = 0; i < n; ++i)
        if (i == hit) x[i] -= upstream;
    }
  }
};

}  // namespace ce
