// The gradient of softmax and of its logarithm with respect to their input, from the output y and its
// gradient dy. The contract is in row/operation.cuh.
//
//     dx = y (dy - sum of dy y)        or        dx = dy - exp(y) (sum of dy)
#pragma once
#include "row/tile.cuh"

namespace ce {

struct SoftmaxBackward : OperationDefaults {
  using Stats = SoftmaxStats<softmax_backward_stats()>;
  static constexpr bool reduces = true, has_output = true;

  float dot;

  using OperationDefaults::OperationDefaults;
  CE_DEVICE static float padding() { return 0.f; }
  template <class Tile>
  CE_DEVICE bool add(Stats& stats, const Tile& tile) const {
    constexpr int vec = Tile::vec, count = sizeof(tile.elements) / sizeof(tile.elements[0]);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      float dy[vec], y[vec];
      tile.elements[i].of_input[0].values(dy);
      tile.elements[i].of_input[1].values(y);
      float partial = 0.f;
#pragma unroll
      for (int k = 0; k < vec; ++k)
        partial = problem::logarithm ? partial + dy[k] : multiply_add(dy[k], y[k], partial);
      stats.dot.value += partial;
    }
    return true;
  }
  CE_DEVICE void finalize(const Stats& total) { dot = total.dot.total(); }
  template <bool is_fast, int n>
  CE_DEVICE Vector<Element, n> apply(const Elements<Element, n>& elements, int) const {
    float dy[n], y[n];
    elements.of_input[0].values(dy);
    elements.of_input[1].values(y);
#pragma unroll
    for (int k = 0; k < n; ++k)
      y[k] = problem::logarithm ? multiply_add(-exponential(y[k]), dot, dy[k]) : y[k] * (dy[k] - dot);
    return Vector<Element, n>::of(y);
  }
};

static_assert(RowOperation<SoftmaxBackward>);

}  // namespace ce
