// Softmax and its logarithm, forward. The contract is in row/operation.cuh.
//
//     y = exp(x - max) / sum        or        y = (x - max) - log(sum)
#pragma once
#include "row/exponentials.cuh"

namespace ce {

struct Softmax : OperationDefaults {
  using Stats = SoftmaxStats<softmax_stats()>;
  static constexpr bool reduces = true, has_output = true;

  float max, log_sum;
  Probability probability;

  using OperationDefaults::OperationDefaults;
  CE_DEVICE static float padding() { return -infinity(); }
  CE_DEVICE static float exponent_factor() { return exponent_of_e; }
  CE_DEVICE static bool needs_maximum() { return true; }
  template <class Tile>
  CE_DEVICE float maximum_of(const Tile& tile) const {
    return largest_of(tile);
  }
  template <class Tile>
  CE_DEVICE bool add(Stats& stats, const Tile& tile) const {
    return add_exponentials(stats, tile, exponent_factor());
  }
  CE_DEVICE void finalize(const Stats& total) {
    const float sum = Exponent(total.max, exponent_factor()).relative(total.sum);
    if constexpr (problem::logarithm) {
      max = total.max;
      log_sum = log(sum);
    } else {
      probability = Probability::of<Element>(total.max, sum, 1.f / sum, exponent_factor(), 1.f);
    }
  }
  CE_DEVICE bool fast() const { return problem::logarithm || probability.fast<Element>(); }
  template <bool is_fast, int n>
  CE_DEVICE Vector<Element, n> apply(const Elements<Element, n>& elements, int) const {
    float x[n];
    elements.of_input[0].values(x);
    if constexpr (problem::logarithm) {
#pragma unroll
      for (int k = 0; k < n; ++k) x[k] = (x[k] - max) - log_sum;
    } else {
      probability.apply<is_fast, Element>(x);
    }
    return Vector<Element, n>::of(x);
  }
};

static_assert(RowOperation<Softmax>);

}  // namespace ce
