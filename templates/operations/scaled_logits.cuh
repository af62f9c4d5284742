// The transform that cross entropy first applies to the logits x:
//
//     z = scale x        or, with a soft cap,        z = cap tanh(scale x / cap)
//
// where rows may have a scale of their own. Kernels work on u with z = unit u, so that a factor costs nothing: u = x
// and unit = scale without a cap. Logits under a cap are in logits.cuh.
#pragma once
#include "row/row.cuh"

namespace ce {

/// A transformed logit u, and du/dy there, with y = x without a cap, and y = scale x / cap with one.
struct Transformed {
  float u, slope;
};

/// \tparam are_capped  selects the specialization in logits.cuh
template <bool are_capped>
struct LogitsOf;
using Logits = LogitsOf<problem::softcap>;
using ScaledLogits = LogitsOf<false>;

template <>
struct LogitsOf<false> {
  static constexpr bool bounded = false;
  float scale;
  /// Constants of a cap (1 without): ratio = scale / cap, |x| below which tanh has the form near 0, c = cap log2(e), 1
  /// / c.
  float cap, ratio, near, c, per_c;
  /// Without a maximum, sums of exponentials could overflow, or lose small terms.
  bool need_maximum;

  CE_DEVICE explicit LogitsOf(const Arguments& arguments)
      : scale(scale_in(arguments)), cap(1.f), ratio(1.f), near(1.f), c(1.f), per_c(1.f), need_maximum(true) {}
  /// The logits of a row that has a scale of its own.
  CE_DEVICE ScaledLogits of_row(float row_scale) const {
    ScaledLogits own = *this;
    if constexpr (problem::row_scales) own.scale = scale_of(row_scale);
    return own;
  }
  /// An invalid scale of a row is replaced by 1 (see is_scale()).
  CE_DEVICE float scale_of(float row_scale) const { return is_scale(row_scale) ? scale * row_scale : 1.f; }
  /// Whether kernels can multiply logits by it: no derived number is infinite or subnormal.
  CE_DEVICE bool is_scale(float row_scale) const {
    return scale * row_scale >= 0x1p-60f && scale * row_scale <= 0x1p60f;
  }
  CE_DEVICE float unit() const { return scale; }
  CE_DEVICE static float of(float x) { return x; }
  CE_DEVICE static Transformed of_target(float x) { return {x, 1.f}; }
  /// Returns log(sum) - z[t].
  /// \param u  transformed logit of the target, minus the maximum's
  CE_DEVICE float log_sum_less_target(float u, float, float log_sum) const {
    return multiply_add(-scale, u, log_sum);
  }
  /// Memory holds u, and the conditions that a cap has for tiles are always true.
  template <class Tile>
  CE_DEVICE static void put_under_cap(Tile&) {}
  template <bool, int n>
  CE_DEVICE static void take_out(const Vector<problem::Element, n>& vector, float (&u)[n], float (&)[n]) {
    vector.values(u);
  }
  template <class Tile>
  CE_DEVICE static bool near_zero(const Tile&) {
    return true;
  }
  template <class Tile>
  CE_DEVICE static bool near_zero_under_cap(const Tile&) {
    return true;
  }
  CE_DEVICE static float unit_under_cap() { return 1.f; }

 protected:
  /// For logits under a cap, whose constructor sets the other members.
  CE_DEVICE explicit LogitsOf(float kernel_scale) : scale(kernel_scale) {}
  CE_DEVICE static float scale_in(const Arguments& arguments) {
    return problem::scale ? arguments.amounts[problem::scale_amount] : 1.f;
  }
};

}  // namespace ce
