// The rows in the order of their classes, those of one class in their own order: a thread counts the rows before its own.
// Those that have no class come last. All rows pass through shared memory, `threads` at a time.
//
// Bound by the instructions of rows x rows comparisons.
#pragma once
#include "linear/exponentials/rows.cuh"

namespace ce {

struct OrderShared {
  int classes[problem::threads];
};

}  // namespace ce

CE_KERNEL(ce_linear_order, ce::problem::threads) {
  using namespace ce;
  constexpr int threads = problem::threads;
  OrderShared& shared = shared_memory<OrderShared>();
  const int64 rows = arguments.call.rows, row = block_index() * threads + thread_index();
  const int own = row < rows ? int(class_of(arguments, row)) : 0;
  int before = 0;
  for (int64 first = 0; first < rows; first += threads) {
    const int64 other = first + thread_index();
    shared.classes[thread_index()] = other < rows ? int(class_of(arguments, other)) : 0x7fffffff;
    block_barrier();
    const int64 earlier = row - first;  // so many of these have a smaller number
#pragma unroll 8
    for (int i = 0; i < threads; ++i)
      before += shared.classes[i] < own || (shared.classes[i] == own && i < earlier) ? 1 : 0;
    block_barrier();
  }
  if (row < rows) arguments.order[before] = int(row);
}
