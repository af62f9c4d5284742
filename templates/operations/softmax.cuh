// Softmax and its logarithm, forward. The interface is described in tile.cuh.
//
//     y = exp(x - max) / sum        or        y = (x - max) - log(sum)
#pragma once
#include "row/exponentials.cuh"

namespace ce {

struct Operation {
  using Element = problem::Element;
  using Part = ce::Part<true, false, false>;
  static constexpr bool reduces = true, has_output = true, has_target = false, all_weights = false,
                        caps = false, some_simple = false;

  float max, log_sum;
  Probability probability;

  struct Early {
    CE_DEVICE Early(const Arguments&, int64) {}
    CE_DEVICE void look_up(const Arguments&) {}
  };
  struct Common {
    CE_DEVICE Common() {}
    CE_DEVICE explicit Common(const Arguments&) {}
  };
  struct Fixed {
    CE_DEVICE explicit Fixed(const Arguments&) {}
  };
  CE_DEVICE Operation(const Arguments&, int64, bool) {}
  CE_DEVICE Operation(const Arguments&, int64, bool, const Early&, const Fixed&) {}
  CE_DEVICE static float padding() { return -infinity(); }
  CE_DEVICE static float factor() { return exponent_of_e; }
  CE_DEVICE bool constant(float&) const { return false; }
  CE_DEVICE Element target_logit(const Row<Element>&) const { return {}; }
  CE_DEVICE void prepare() {}
  CE_DEVICE void prepare(const Common&) {}
  CE_DEVICE void set_target(Element) {}
  CE_DEVICE void record() const {}
  CE_DEVICE static bool needs_maximum() { return true; }
  template <class Tile>
  CE_DEVICE float maximum_of(const Tile& tile) const {
    return largest_of(tile);
  }
  template <class Tile>
  CE_DEVICE bool add(Part& part, const Tile& tile) const {
    return add_exponentials(part, tile, factor());
  }
  CE_DEVICE void settle(const Part& total) {
    const float sum = Exponent(total.max, factor()).relative(total.sum);
    if constexpr (problem::logarithm) {
      max = total.max;
      log_sum = log(sum);
    } else {
      probability = Probability::of<Element>(total.max, sum, 1.f / sum, factor(), 1.f);
    }
  }
  CE_DEVICE bool fast() const { return problem::logarithm || probability.fast<Element>(); }
  template <class Tile>
  CE_DEVICE static bool simple(const Tile&) {
    return true;
  }
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

}  // namespace ce
