// The gradient of softmax and of its logarithm with respect to their input, from the output y and its
// gradient dy. The interface is described in tile.cuh.
//
//     dx = y (dy - sum of dy y)        or        dx = dy - exp(y) (sum of dy)
#pragma once
#include "row/tile.cuh"

namespace ce {

struct Operation {
  using Element = problem::Element;
  using Part = ce::Part<false, true, false>;
  static constexpr bool reduces = true, has_output = true, has_target = false, all_weights = false,
                        caps = false, some_simple = false;

  float dot;

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
  CE_DEVICE static float padding() { return 0.f; }
  CE_DEVICE static float factor() { return 1.f; }
  CE_DEVICE bool constant(float&) const { return false; }
  CE_DEVICE Element target_logit(const Row<Element>&) const { return {}; }
  CE_DEVICE void prepare() {}
  CE_DEVICE void prepare(const Common&) {}
  CE_DEVICE void set_target(Element) {}
  CE_DEVICE void record() const {}
  CE_DEVICE static bool needs_maximum() { return false; }
  template <class Tile>
  CE_DEVICE bool add(Part& part, const Tile& tile) const {
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
      part.dot.value += partial;
    }
    return true;
  }
  CE_DEVICE void settle(const Part& total) { dot = total.dot.total(); }
  CE_DEVICE bool fast() const { return true; }
  template <class Tile>
  CE_DEVICE static bool simple(const Tile&) {
    return true;
  }
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

}  // namespace ce
