// Finds the tokens that count: their positions among all tokens (places), in ascending order, and for each token its
// number among those. Uses one block; each thread reads neighbouring tokens twice: it counts, and when it knows how
// many come before its own it writes.
//
// For tokens beyond `limit` it only writes that they have no number, and the total count. Unused places are set to the
// number of all tokens, which is no valid position.
#pragma once
#include "linear_arguments.cuh"

using Arguments = ce::LinearArguments;

namespace ce {

struct PlacesShared {
  int64 counts[2][problem::threads];
};

}  // namespace ce

CE_KERNEL(ce_linear_places, ce::problem::threads) {
  using namespace ce;
  const int own = thread_index();
  const int64 share = (arguments.rows + problem::threads - 1) / problem::threads;
  const int64 first = own * share, end = first + share < arguments.rows ? first + share : arguments.rows;
  const problem::Target* const target = static_cast<const problem::Target*>(arguments.target);
  int64 count = 0;
  for (int64 row = first; row < end; ++row) count += int64(target[row]) != arguments.ignore_index ? 1 : 0;

  PlacesShared& shared = shared_memory<PlacesShared>();
  int from = 0;
  shared.counts[from][own] = count;
  block_barrier();
  for (int distance = 1; distance < problem::threads; distance *= 2) {
    const int64 before = own >= distance ? shared.counts[from][own - distance] : 0;
    shared.counts[1 - from][own] = shared.counts[from][own] + before;
    from = 1 - from;
    block_barrier();
  }
  const int64 all = shared.counts[from][problem::threads - 1];
  if (own == 0) *arguments.counted = all;
  int64 number = shared.counts[from][own] - count;
  for (int64 row = first; row < end; ++row) {
    const bool counts = int64(target[row]) != arguments.ignore_index;
    const bool is_taken = counts && number < arguments.limit;
    arguments.numbers[row] = is_taken ? number : -1;
    if (is_taken) arguments.places[number] = row;
    number += counts ? 1 : 0;
  }
  for (int64 left = (all < arguments.limit ? all : arguments.limit) + own; left < arguments.columns;
       left += problem::threads)
    arguments.places[left] = arguments.rows;
}
