// Softmax as the end of a row: y = exp(x - max) / sum.
//
// An Epilogue is what an operation adds to a Variant. The Variant reads the row, finds its Statistics, and asks:
//   Epilogue(arguments, row, leader)  by every thread of the row; one of them leads and writes what a row has once
//   constant(value)   is this row's output one value that needs no logits? (ignored rows of cross entropy)
//   settle(total)     here are the statistics of the whole row
//   apply(x, column)  turn these logits, the first of them at `column`, into outputs
//   has_output        whether there is anything to write per element
#pragma once
#include "arguments.cuh"
#include "row.cuh"
#include "statistics.cuh"

namespace ce {

struct Epilogue {
  static constexpr bool has_output = true;
  float shift, scale;

  CE_DEVICE Epilogue(const Arguments&, int64, bool) {}
  CE_DEVICE bool constant(float&) const { return false; }
  CE_DEVICE void settle(const Statistics& total) {
    shift = total.max;
    scale = 1.f / total.sum;
  }
  template <int n>
  CE_DEVICE void apply(float (&x)[n], int) const {
#pragma unroll
    for (int i = 0; i < n; ++i) x[i] = exp_minus(x[i], shift) * scale;
  }
};

}  // namespace ce
