// Sorts the rows by their classes, stably: a thread counts the rows before its own. Rows without a class come last. A
// block is a warp; all rows pass through its shared memory, a few at a time.
//
// Bound by the instructions of rows x rows comparisons.
#pragma once
#include "linear/exponentials/rows.cuh"

namespace ce {

struct alignas(16) OrderShared {
  static constexpr int together = 4;
  int classes[problem::rows_at_once];
};

}  // namespace ce

CE_KERNEL(ce_linear_order, ce::lanes) {
  using namespace ce;
  constexpr int at_once = problem::rows_at_once, together = OrderShared::together;
  OrderShared& shared = shared_memory<OrderShared>();
  const int64 rows = arguments.call.rows, first_own = block_index() * lanes, row = first_own + lane_index();
  const int own = row < rows ? int(class_of(arguments, row)) : 0;
  int before = 0;
  for (int64 first = 0; first < rows; first += at_once) {
#pragma unroll 4
    for (int i = lane_index(); i < at_once; i += lanes)
      shared.classes[i] = first + i < rows ? int(class_of(arguments, first + i)) : 0x7fffffff;
    warp_barrier();
    // An earlier row with the same class comes before; a later one comes after.
    const auto count_below = [&](int begin, int end, int bound) {
#pragma unroll 4
      for (int i = begin; i < end; i += together) {
        const auto four = reinterpret_cast<const Words<together>&>(shared.classes[i]);
#pragma unroll
        for (int k = 0; k < together; ++k) before += int(int(four.word[k]) < bound);
      }
    };
    const int64 until_own = first_own - first;
    const int split = until_own < 0 ? 0 : until_own < at_once ? int(until_own) : at_once;
    count_below(0, split, own + 1);
    count_below(split, at_once, own);
    if (until_own >= 0 && until_own < at_once)
      for (int i = 0; i < lane_index(); ++i) before += int(shared.classes[split + i] == own);
    warp_barrier();
  }
  if (row >= rows) return;
  arguments.order[before] = int(row);
  arguments.classes_in_order[before] = own;
}
