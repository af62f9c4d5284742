// What the kernels of this folder ask of a row.
#pragma once
#include "device/warp_reduce.cuh"
#include "kernels/gemm/row_statistics.cuh"
#include "linear_exponentials_arguments.cuh"

using Arguments = ce::LinearExponentialsArguments;

namespace ce {

/// The class of a row; behind all classes where the row has none that counts.
CE_DEVICE int64 class_of(const LinearExponentialsArguments& arguments, int64 row) {
  const int64 target = target_of(arguments.call, row);
  const bool counts = target != arguments.call.ignore_index && target >= 0 && target < arguments.call.classes;
  return counts ? target : arguments.call.classes;
}

CE_DEVICE const problem::Input* hidden_of(const LinearExponentialsArguments& arguments, int64 row) {
  return static_cast<const problem::Input*>(arguments.hidden) + row * arguments.hidden_stride;
}
CE_DEVICE const problem::Input* weight_of_class(const LinearExponentialsArguments& arguments, int64 index) {
  return static_cast<const problem::Input*>(arguments.weight) + index * arguments.weight_stride;
}

/// Calls visit(first) for each `threads` x `unroll` neighbouring columns, of which a thread has first, first + threads, ...
template <int threads, int unroll, class Visit>
CE_DEVICE void each_column(int64 columns, Visit&& visit) {
  for (int64 first = thread_index(); first < columns; first += threads * unroll) visit(first);
}

}  // namespace ce
