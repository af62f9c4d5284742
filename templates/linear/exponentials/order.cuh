// The rows in the order of their classes, those of one class in their own order: a thread counts the rows before its own.
// Those that have no class come last. All rows pass through shared memory, `threads` at a time.
//
// Bound by the instructions of rows x rows comparisons.
#pragma once
#include "linear/exponentials/rows.cuh"

namespace ce {

struct alignas(16) OrderShared {
  int classes[problem::threads];
};

}  // namespace ce

CE_KERNEL(ce_linear_order, ce::problem::threads) {
  using namespace ce;
  constexpr int threads = problem::threads, together = 4;
  OrderShared& shared = shared_memory<OrderShared>();
  const int64 rows = arguments.call.rows, row = block_index() * threads + thread_index();
  const int own = row < rows ? int(class_of(arguments, row)) : 0;
  int before = 0;
  for (int64 first = 0; first < rows; first += threads) {
    const int64 other = first + thread_index();
    shared.classes[thread_index()] = other < rows ? int(class_of(arguments, other)) : 0x7fffffff;
    block_barrier();
    // Of all rows here, or of none, but for those of the own block, rows of the same class come before.
    const bool is_own = first == row - thread_index();
    const int bound = first < row && !is_own ? own + 1 : own;
#pragma unroll 4
    for (int i = 0; i < threads; i += together) {
      const auto four = reinterpret_cast<const Words<together>&>(shared.classes[i]);
#pragma unroll
      for (int k = 0; k < together; ++k) before += int(int(four.word[k]) < bound);
    }
    if (is_own)
      for (int i = 0; i < thread_index(); ++i) before += int(shared.classes[i] == own);
    block_barrier();
  }
  if (row >= rows) return;
  arguments.order[before] = int(row);
  arguments.classes_in_order[before] = own;
}
