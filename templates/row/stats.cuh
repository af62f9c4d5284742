// The statistics of a row in a thread, a warp or a block, and how they are merged.
//
// Sums of exponentials follow the online recurrence (Milakov and Gimelshein, 2018, "Online normalizer
// calculation for softmax"): the sum with the smaller maximum is rescaled to the larger one,
//
//     (m1, s1) + (m2, s2) = (m, s1 exp(m1 - m) + s2 exp(m2 - m))  with  m = max(m1, m2)
//
// The statistics of only -infinity are (-infinity, 0). +infinity and NaN make the sum NaN, which then reaches every
// result of the row, as in PyTorch.
#pragma once
#include "row/exponent.cuh"
#include "row/layout.cuh"

namespace ce {

/// A column behind every row: the largest int.
constexpr int no_column = 0x7fffffff;

/// A sum over many threads. Adding within a thread rounds little, since its own sum is small compared with the total;
/// merging rounds more, and happens up to a dozen times. So in f32 `low` keeps the rounding errors of merges (TwoSum;
/// Knuth, 1969, "The Art of Computer Programming", volume 2, 4.2.2).
template <bool is_narrow>
struct CompensatedSum;
template <>
struct CompensatedSum<true> {
  float value = 0.f;

  static constexpr int words = 1;
  template <class Visit>
  CE_DEVICE void each(Visit& visit) {
    visit(value);
  }

  CE_DEVICE void merge(const CompensatedSum& other) { value += other.value; }
  CE_DEVICE CompensatedSum of_lane(int mask) const { return {shuffle_xor(value, mask)}; }
  CE_DEVICE float total() const { return value; }
};
template <>
struct CompensatedSum<false> {
  float value = 0.f, low = 0.f;

  static constexpr int words = 2;
  template <class Visit>
  CE_DEVICE void each(Visit& visit) {
    visit(value), visit(low);
  }
  CE_DEVICE void merge(const CompensatedSum& other) {
    const float sum = value + other.value, merged = sum - value;
    low = (low + other.low) + ((value - (sum - merged)) + (other.value - merged));
    value = sum;
  }
  CE_DEVICE CompensatedSum of_lane(int mask) const {
    return {shuffle_xor(value, mask), shuffle_xor(low, mask)};
  }
  /// With an infinite sum, `low` is not a number.
  CE_DEVICE float total() const { return low == low ? value + low : value; }
};

/// The sum of exponential x exponent, from which the entropy of the row follows. Takes no memory if it is not used.
template <bool used>
struct Moment {
  CE_DEVICE static float of_exponentials() { return 0.f; }
};
template <>
struct Moment<true> {
  float moment = 0.f;
  CE_DEVICE float of_exponentials() const { return moment; }
};
/// The product of an exponential with its exponent; 0 if the exponential is 0.
CE_DEVICE float moment_of(float power, float exponent) { return power * at_least(exponent, -256.f); }

/// \tparam members  members in use: `max` and `sum`; `dot`, with exponentials also `weight`; `largest` and `argmax`;
///                                   `moment`
template <StatsMembers members>
struct SoftmaxStats : Moment<members.moment> {
  static constexpr bool exponentials = members.exponentials, dots = members.dots, indices = members.indices,
                        moments = members.moment;

  float max = -infinity();
  float sum = 0.f;                ///< sum of the exponentials given by Exponent(max, c)
  CompensatedSum<narrow> dot;     ///< sum of weight x value; with exponentials of weight x exponent in base e
  CompensatedSum<narrow> weight;  ///< sum of the weights
  float largest = -infinity();    ///< the largest logit
  int argmax = no_column;         ///< the first column that holds it

  /// Rescales the sums to a maximum that is not smaller.
  /// \param c  the factor of the exponents
  CE_DEVICE void rescale(float larger, float c) {
    if constexpr (exponentials) {
      const Exponent exponent(larger, c);
      const float shift = exponent.exponent_of_maximum(max), factor = Exponent::power(shift);
      if constexpr (moments) this->moment = multiply_add(at_least(shift, -256.f), sum, this->moment) * factor;
      sum *= factor;
      // A weight of 0 stays 0 however far the maxima are apart.
      if constexpr (dots)
        if (const float moved = weight.total(); moved != 0.f)
          dot.value = multiply_add(moved, exponent.logarithm_of_maximum(finite_or_zero(max)), dot.value);
      max = larger;
    }
  }
  /// Keeps the first of the largest logits, among the ones so far and others.
  CE_DEVICE void observe(float logit, int column) {
    if (logit > largest || (logit == largest && column < argmax)) {
      largest = logit;
      argmax = column;
    }
  }
  /// Treats NaN as larger than infinity: its column minus 2^31 comes before all others.
  CE_DEVICE void observe_nan(int column) {
    if (column != no_column) observe(infinity(), column - no_column - 1);
  }
  /// The column of the first NaN, else of the first largest logit; the first column if all are -infinity.
  CE_DEVICE int first_largest() const { return argmax == no_column ? 0 : argmax & no_column; }
  /// \param c  the factor of the exponents
  CE_DEVICE void merge(const SoftmaxStats& other, float c) {
    SoftmaxStats next;
    next.assign(other);
    const float larger = maximum(max, next.max);
    rescale(larger, c);
    next.rescale(larger, c);
    add(next);
  }
  /// merge() if both have the same maximum.
  CE_DEVICE void add(const SoftmaxStats& other) {
    if constexpr (exponentials) {
      sum += other.sum;
      if constexpr (moments) this->moment += other.moment;
      if constexpr (dots) weight.merge(other.weight);
    }
    if constexpr (dots) dot.merge(other.dot);
    if constexpr (indices) observe(other.largest, other.argmax);
  }
  /// The members in use, word by word: the contents of a message.
  static constexpr int words = members.words(narrow);
  template <class Visit>
  CE_DEVICE void each(Visit& visit) {
    if constexpr (exponentials) {
      visit(max), visit(sum);
      if constexpr (moments) visit(this->moment);
      if constexpr (dots) weight.each(visit);
    }
    if constexpr (dots) dot.each(visit);
    if constexpr (indices) visit(largest), visit(argmax);
  }
  /// Copies the members in use.
  CE_DEVICE void assign(const SoftmaxStats& other) {
    if constexpr (exponentials) {
      max = other.max;
      sum = other.sum;
      if constexpr (moments) this->moment = other.moment;
      if constexpr (dots) weight = other.weight;
    }
    if constexpr (dots) dot = other.dot;
    if constexpr (indices) {
      largest = other.largest;
      argmax = other.argmax;
    }
  }
};

/// The sum over lanes, like warp_sum() of device.cuh.
template <int width = lanes, bool is_narrow>
CE_DEVICE CompensatedSum<is_narrow> warp_sum(CompensatedSum<is_narrow> x) {
#pragma unroll
  for (int mask = width / 2; mask > 0; mask /= 2) x.merge(x.of_lane(mask));
  return x;
}

/// Sets the maximum of all lanes of the warp to their common one.
/// \tparam at_once  by one instruction, if there is one for all lanes
template <int width = lanes, bool at_once = false, class Stats>
CE_DEVICE void rescale_warp(Stats& stats, float c) {
  if constexpr (Stats::exponentials)
    stats.rescale(at_once && width == lanes ? warp_maximum(stats.max) : warp_max<width>(stats.max), c);
}

/// \tparam rescaled       all lanes have the same maximum
/// \tparam weights_known  the caller knows the sum of the weights
/// \param c              the factor of the exponents; maxima are merged first, so that each lane rescales once
template <int width = lanes, bool rescaled = false, bool weights_known = false, class Stats>
CE_DEVICE Stats warp_merge(Stats stats, float c) {
  if constexpr (!rescaled) rescale_warp<width>(stats, c);
  if constexpr (Stats::exponentials) {
    stats.sum = warp_sum<width>(stats.sum);
    if constexpr (Stats::moments) stats.moment = warp_sum<width>(stats.moment);
    if constexpr (Stats::dots && !weights_known) stats.weight = warp_sum<width>(stats.weight);
  }
  if constexpr (Stats::dots) stats.dot = warp_sum<width>(stats.dot);
  if constexpr (Stats::indices) {
    const float largest = warp_max<width>(stats.largest);
    stats.argmax = warp_min<width>(stats.largest == largest ? stats.argmax : no_column);
    stats.largest = largest;
  }
  return stats;
}

}  // namespace ce
