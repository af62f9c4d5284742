// What a thread, a warp or a block knows of its part of a row, and how parts are joined.
//
// Sums of exponentials follow the online recurrence (Milakov and Gimelshein, 2018, "Online normalizer
// calculation for softmax"): the part with the smaller maximum is moved to the larger one,
//
//     (m1, s1) + (m2, s2) = (m, s1 exp(m1 - m) + s2 exp(m2 - m))  with  m = max(m1, m2)
//
// A part that has seen only -infinity is (-infinity, 0). +infinity and NaN make the sum NaN, which then
// reaches every result of the row, as in PyTorch.
#pragma once
#include "device/warp_reduce.cuh"
#include "row/exponent.cuh"

namespace ce {

/// Behind every row: the largest int.
constexpr int no_column = 0x7fffffff;

/// A sum of what many threads have. Adding within a thread rounds little, since what it has is small beside the
/// whole; joins do not, and there are up to a dozen of them. So in f32 `low` keeps what they round off (TwoSum;
/// Knuth, 1969, "The Art of Computer Programming", volume 2, 4.2.2).
template <bool is_narrow>
struct JointSum;
template <>
struct JointSum<true> {
  float value = 0.f;

  static constexpr int words = 1;
  template <class Visit>
  CE_DEVICE void each(Visit& visit) {
    visit(value);
  }

  CE_DEVICE void join(const JointSum& other) { value += other.value; }
  CE_DEVICE JointSum of_lane(int mask) const { return {shuffle_xor(value, mask)}; }
  CE_DEVICE float total() const { return value; }
};
template <>
struct JointSum<false> {
  float value = 0.f, low = 0.f;

  static constexpr int words = 2;
  template <class Visit>
  CE_DEVICE void each(Visit& visit) {
    visit(value), visit(low);
  }
  CE_DEVICE void join(const JointSum& other) {
    const float sum = value + other.value, joined = sum - value;
    low = (low + other.low) + ((value - (sum - joined)) + (other.value - joined));
    value = sum;
  }
  CE_DEVICE JointSum of_lane(int mask) const { return {shuffle_xor(value, mask), shuffle_xor(low, mask)}; }
  /// An infinite sum has no `low` that is a number.
  CE_DEVICE float total() const { return low == low ? value + low : value; }
};

/// \tparam has_exponentials  `max` and `sum` are used
/// \tparam has_dot           `dot` is used; with exponentials also `weight`
/// \tparam has_argmax        `largest` and `argmax` are used
template <bool has_exponentials, bool has_dot, bool has_argmax>
struct Part {
  static constexpr bool exponentials = has_exponentials, dots = has_dot, indices = has_argmax;

  float max = -infinity();
  float sum = 0.f;          ///< of the exponentials, as Exponent(max, c) gives them
  JointSum<narrow> dot;     ///< sum of weight x value; with exponentials of weight x exponent to the base e
  JointSum<narrow> weight;  ///< sum of the weights
  float largest = -infinity();  ///< logit
  int argmax = no_column;       ///< the first column that holds it

  /// The same with respect to a maximum that is not smaller.
  CE_DEVICE void move_to(float larger, float c) {
    if constexpr (exponentials) {
      const Exponent exponent(larger, c);
      sum *= Exponent::power(exponent.exponent_of_maximum(max));
      // No weight, or one of 0, stays so however far the maxima are apart.
      if constexpr (dots)
        if (const float moved = weight.total(); moved != 0.f)
          dot.value = multiply_add(moved, exponent.logarithm_of_maximum(finite_or_zero(max)), dot.value);
      max = larger;
    }
  }
  /// The first of the largest logits so far, and of others.
  CE_DEVICE void see(float logit, int column) {
    if (logit > largest || (logit == largest && column < argmax)) {
      largest = logit;
      argmax = column;
    }
  }
  /// NaN is larger than infinity: it is one whose column, less 2^31, comes before all others.
  CE_DEVICE void see_nan(int column) {
    if (column != no_column) see(infinity(), column - no_column - 1);
  }
  /// The first NaN, else the first of the largest logits; the first column where all are -infinity.
  CE_DEVICE int first_largest() const { return argmax == no_column ? 0 : argmax & no_column; }
  /// Takes another part in.
  CE_DEVICE void join(const Part& other, float c) {
    Part next;
    next.assign(other);
    const float larger = maximum(max, next.max);
    move_to(larger, c);
    next.move_to(larger, c);
    add(next);
  }
  /// The same where both have the same maximum.
  CE_DEVICE void add(const Part& other) {
    if constexpr (exponentials) {
      sum += other.sum;
      if constexpr (dots) weight.join(other.weight);
    }
    if constexpr (dots) dot.join(other.dot);
    if constexpr (indices) see(other.largest, other.argmax);
  }
  /// What is used, word for word.
  static constexpr int words = (exponentials ? 2 : 0) + (dots ? JointSum<narrow>::words : 0) +
                               (exponentials && dots ? JointSum<narrow>::words : 0) + (indices ? 2 : 0);
  template <class Visit>
  CE_DEVICE void each(Visit& visit) {
    if constexpr (exponentials) {
      visit(max), visit(sum);
      if constexpr (dots) weight.each(visit);
    }
    if constexpr (dots) dot.each(visit);
    if constexpr (indices) visit(largest), visit(argmax);
  }
  /// Copies what is used.
  CE_DEVICE void assign(const Part& other) {
    if constexpr (exponentials) {
      max = other.max;
      sum = other.sum;
      if constexpr (dots) weight = other.weight;
    }
    if constexpr (dots) dot = other.dot;
    if constexpr (indices) {
      largest = other.largest;
      argmax = other.argmax;
    }
  }
};

/// As those of warp_reduce.cuh.
template <int width = lanes, bool is_narrow>
CE_DEVICE JointSum<is_narrow> warp_sum(JointSum<is_narrow> x) {
#pragma unroll
  for (int mask = width / 2; mask > 0; mask /= 2) x.join(x.of_lane(mask));
  return x;
}

/// Gives all parts of the warp their common maximum.
/// \tparam at_once  by one instruction, where there is one for all lanes
template <int width = lanes, bool at_once = false, class Part>
CE_DEVICE void level(Part& part, float c) {
  if constexpr (Part::exponentials)
    part.move_to(at_once && width == lanes ? warp_maximum(part.max) : warp_max<width>(part.max), c);
}

/// \tparam leveled  all parts have the same maximum
/// \tparam weighed  the caller knows the sum of the weights
/// \param c         the factor of the exponents; the maxima are joined first, so that each lane moves once
template <int width = lanes, bool leveled = false, bool weighed = false, class Part>
CE_DEVICE Part warp_join(Part part, float c) {
  if constexpr (!leveled) level<width>(part, c);
  if constexpr (Part::exponentials) {
    part.sum = warp_sum<width>(part.sum);
    if constexpr (Part::dots && !weighed) part.weight = warp_sum<width>(part.weight);
  }
  if constexpr (Part::dots) part.dot = warp_sum<width>(part.dot);
  if constexpr (Part::indices) {
    const float largest = warp_max<width>(part.largest);
    part.argmax = warp_min<width>(part.largest == largest ? part.argmax : no_column);
    part.largest = largest;
  }
  return part;
}

/// Over the block; every thread gets the result. Orders the memory accesses before it with those after it,
/// for all threads of the block.
/// \tparam leveled  all parts of a warp have the same maximum
template <int warps, bool leveled = false, class Part>
CE_DEVICE Part block_join(const Part& part, Part (&shared)[warps], float c) {
  const Part own = warp_join<lanes, leveled>(part, c);
  if constexpr (warps == 1) {
    warp_barrier();
    return own;
  }
  if (lane_index() == 0) shared[warp_index()].assign(own);
  block_barrier();
  Part other;
  other.assign(shared[lane_index() % warps]);
  return warp_join<warps>(other, c);
}

}  // namespace ce
