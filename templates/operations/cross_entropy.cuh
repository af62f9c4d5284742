// Cross entropy, forward and backward. The interface is described in tile.cuh.
//
// With z the logits (logits.cuh), lse = log sum exp z, q = exp(z - lse), C columns, smoothing e, class
// weights w (1 without), and a target class t:
//
//     loss  = (1 - e) w[t] (lse - z[t]) + e / C sum_i w[i] (lse - z[i]) + z_scale lse^2
//     dz[i] = ((1 - e) w[t] (q[i] - [i == t]) + e / C (q[i] sum w - w[i])) / D + 2 z_scale lse q[i] / R
//
// D is 1, for a mean the weights of the counted targets; R is 1, for a mean the counted rows (as Liger-Kernel
// does it). With probabilities p' = (1 - e) p + e / C as targets:
//
//     loss  = sum_i w[i] p'[i] (lse - z[i]) + z_scale lse^2
//     dz[i] = (q[i] sum w p' - w[i] p'[i]) / R + 2 z_scale lse q[i] / R
//
// The gradient of the logits is upstream x dz x slope. The sum of exponentials leaves the target out until
// the row is done: loss and gradient of a target whose probability is next to 1 come from the sum of the
// others, not from a difference of almost equal numbers.
//
// A row whose target is ignore_index has loss 0 and gradient 0; one whose target is no class has NaN in both
// and is noted in the status. The backward operation reads lse instead of finding it.
#pragma once
#include "operations/class_weights.cuh"
#include "operations/fused_sums.cuh"
#include "operations/logits.cuh"
#include "row/exponentials.cuh"

namespace ce {

struct Operation {
  using Element = problem::Element;
  using Weight = problem::Weight;
  using ClassWeights = ce::ClassWeights;
  static constexpr bool forward = !problem::from_lse;
  /// Sums over all classes of w z and w, or of w p' z and w p'.
  static constexpr bool class_sums =
      problem::probabilities || (problem::smoothing && (forward || problem::weights));
  using Part = ce::Part<forward, class_sums, problem::argmax_out || problem::hit_out>;
  static constexpr bool reduces = forward || class_sums, has_output = problem::gradient;
  static constexpr bool has_target = !problem::probabilities;
  static constexpr bool all_weights = problem::weights && (problem::smoothing || problem::probabilities);
  static constexpr bool caps = problem::softcap, some_simple = Logits::bounded;
  /// Rows without a class still have a logsumexp.
  static constexpr bool needs_all_rows = problem::lse_out || problem::argmax_out;

  /// What can be read before the row's turn.
  struct Early {
    int64 index = 0;  ///< the target, as it was given
    float upstream = 1.f;
    float weight = 1.f;  ///< of the target

    CE_DEVICE Early() {}
    CE_DEVICE Early(const Arguments& a, int64 r) {
      if constexpr (!problem::probabilities) index = target_of(a, r);
      if constexpr (problem::upstream_scalar || problem::upstream_rows)
        upstream = to_float(load_element<Load::ca>(static_cast<const problem::Loss*>(a.upstream) +
                                                   (problem::upstream_rows ? r : 0)));
    }
    /// What depends on what has been read.
    CE_DEVICE void look_up(const Arguments& a) {
      if constexpr (problem::weights && has_target)
        if (is_class(index)) weight = weight_of(a, index);
    }
  };

  using Fixed = Logits;  ///< what the arguments alone say

  /// What all rows share. By whole warps; waits for ce_count, if there is one.
  struct Common {
    float per_row = 1.f, per_weight = 1.f;  ///< 1 / R, 1 / D
    float per_class = 0.f;                  ///< e / C / D

    CE_DEVICE Common() {}
    CE_DEVICE explicit Common(const Arguments& a) {
      if constexpr (problem::mean) {
        const Counted counted = counted_rows(a);
        per_row = 1.f / float(counted.rows);
        per_weight = problem::counts_first && weighted_mean ? 1.f / counted.weight : per_row;
      }
      if constexpr (problem::smoothing) per_class = a.smoothing / problem::columns * per_weight;
    }

   private:
    CE_DEVICE static Counted counted_rows(const Arguments& a) {
      if constexpr (!problem::counts_first) return {a.rows};
      if constexpr (problem::fuses_sums) return count_all_rows(a);
      step_wait();
      return {a.workspace->count, a.workspace->weight};
    }
  };

  const Arguments& arguments;
  const int64 row;
  const bool leader;
  const Logits logits;
  ClassWeights weights;  ///< of all classes: a Variant may have them elsewhere
  int target = nowhere;  ///< its column
  float u_target = 0.f, target_slope = 1.f;
  Common common;
  bool dead = false;  ///< outputs are `dead_value`
  float dead_value = 0.f;

  /// Of the whole row, for record().
  struct Total {
    Part part;
    float own = 0.f,
          rest = 0.f;  ///< exponential of the target, and the sum of the others, with respect to the maximum
    float log_sum, lse;
    float of_all;  ///< sum over the classes of w (lse - z), or of w p' (lse - z)
  } total;
  Probability probability;
  float at_target, per_class, per_probability;  ///< the latter two as slopes are

  /// Whether the sum of the weights of the tile that is added is known, which is the same for every row.
  bool knows_weight = false;
  float tile_weight = 0.f;

  Early early;

  CE_DEVICE Operation(const Arguments& a, int64 r, bool l, const Early& e, const Fixed& fixed)
      : arguments(a), row(r), leader(l), logits(fixed), weights{ClassWeights::in_memory(a)}, early(e) {
    if constexpr (problem::sums && !problem::fuses_sums) step_release();  // ce_sum
  }
  CE_DEVICE Operation(const Arguments& a, int64 r, bool l) : Operation(a, r, l, Early(a, r), Fixed(a)) {}
  /// What outputs need of a row that is settled.
  struct Settled {
    Probability probability;
    float at_target, per_class, per_probability;
    int target;
    bool dead;
    float dead_value;
  };
  CE_DEVICE Settled settled() const {
    return {probability, at_target, per_class, per_probability, target, dead, dead_value};
  }
  /// For outputs only, of whatever row is put.
  CE_DEVICE explicit Operation(const Arguments& a)
      : arguments(a), row(0), leader(false), logits(a), weights{ClassWeights::in_memory(a)} {}
  CE_DEVICE void put(const Settled& of) {
    probability = of.probability;
    at_target = of.at_target;
    per_class = of.per_class;
    per_probability = of.per_probability;
    target = of.target;
    dead = of.dead;
    dead_value = of.dead_value;
  }
  CE_DEVICE static float padding() { return -infinity(); }
  CE_DEVICE float factor() const { return exponent_of_e * logits.unit(); }

  CE_DEVICE bool constant(float& value) {
    if constexpr (problem::probabilities) return false;
    const bool ignored = early.index == arguments.ignore_index;
    if (!ignored && is_class(early.index)) {
      target = int(early.index);
      return false;
    }
    value = dead_value = ignored ? 0.f : not_a_number();
    dead = true;
    if (leader && !ignored) {
      atomic_add(&arguments.status->count, 1);
      const int64 index = early.index, known = index < least_bad_target  ? least_bad_target
                                               : index > most_bad_target ? most_bad_target
                                                                         : index;
      atomic_min(&arguments.status->first, (row << bad_target_bits) + known - least_bad_target);
    }
    if constexpr (needs_all_rows) return false;
    if constexpr (problem::counts_first && !problem::fuses_sums)
      step_wait();  // no row kernel ends before ce_count
    return true;
  }

  /// The logit of the target, as it is read.
  CE_DEVICE Element target_logit(const Row<Element>& data) const {
    return target == nowhere ? Element{} : data.logit(target);
  }

  CE_DEVICE void prepare() {
    early.look_up(arguments);
    prepare(Common(arguments));
  }
  CE_DEVICE void prepare(const Common& of_all_rows) {
    common = of_all_rows;
    if constexpr (!forward) total.lse = arguments.lse[row];
  }
  CE_DEVICE void set_target(Element logit) {
    if (target == nowhere) return;
    const Transformed transformed = logits.of_target(to_float(logit));
    u_target = transformed.u;
    target_slope = transformed.slope;
  }

  template <class Tile>
  CE_DEVICE void cap(Tile& tile) const {
    logits.put_under_cap(tile);
  }
  CE_DEVICE bool needs_maximum() const { return logits.need_maximum; }
  template <class Tile>
  CE_DEVICE float maximum_of(const Tile& tile) const {
    return logits.of(largest_of(tile));
  }

  /// Whether a tile that is full and without the target may be added as a plain one, if no maximum is needed.
  template <class Tile>
  CE_DEVICE bool takes_plainly(const Tile& tile) const {
    return logits.near_zero(tile);
  }
  /// What add() counts of a tile besides its exponentials.
  template <class Tile>
  CE_DEVICE float weights_of(const Tile& tile) const {
    Part part;
    add_weights(part, tile);
    return part.dot.value;
  }
  template <class Tile>
  CE_DEVICE bool add(Part& part, Tile& tile) const {
    if constexpr (caps && !(forward && Logits::bounded)) cap(tile);
    if constexpr (!forward) {
      if (knows_weight)
        part.dot.value += tile_weight;
      else
        add_weights(part, tile);
      return simple(tile);
    } else if constexpr (class_sums) {
      float dot = 0.f;
      const bool are_simple = add_exponentials(part, tile, transform(), factor(), target,
                                               [&](int i, const float(&exponents)[Tile::vec]) {
                                                 float w[Tile::vec];
                                                 factors(tile, i, w);
                                                 const float sum = dot_of(w, exponents);
                                                 dot = i == 0 && Tile::is_plain ? sum : dot + sum;
                                                 if (!knows_weight) part.weight.value += sum_of(w);
                                               });
      // A plain tile under a cap moves no maximum; and who knows its weight knows the row's.
      if (knows_weight && !(Logits::bounded && Tile::is_plain)) part.weight.value += tile_weight;
      dot = product(dot, 1.f / exponent_of_e);
      if constexpr (!Logits::bounded && (narrow || problem::weights || problem::probabilities))
        if (!is_finite(dot)) dot = dot_of_logarithms(part, tile);
      part.dot.value += dot;
      return are_simple;
    } else if constexpr (Logits::bounded) {
      return add_exponentials(part, tile, transform(), factor(), target, Nobody{});
    } else {
      if constexpr (has_target) tile.replace(target, -infinity());
      return add_exponentials(part, tile, factor());
    }
  }

  CE_DEVICE void settle(const Part& part) {
    float weights = problem::columns;  // sum of w, or of w p'
    if constexpr (class_sums && (problem::weights || problem::probabilities))
      weights = (forward ? part.weight : part.dot).total();
    if constexpr (forward) {
      const Exponent exponent(part.max, factor());
      if (target != nowhere) total.own = exponent.relative(Exponent::power(exponent_of(exponent, u_target)));
      total.rest = exponent.relative(part.sum);
      const float sum = total.rest + total.own;
      total.part = part;
      if constexpr (Part::indices)
        if (u_target != u_target) total.part.see_nan(target);  // which was left out of the sum
      total.log_sum = log(sum);
      // A single class has the loss 0: its terms are made alike on both sides.
      total.of_all = multiply_add(
          total.log_sum, weights,
          product(product(weights, exponent.at_maximum()), 1.f / exponent_of_e) - part.dot.total());
      total.lse = logits.unit() * part.max + total.log_sum;
      const float share = narrow ? reciprocal(sum) : 1.f / sum;
      set_amplitudes(part.max, sum, share, total.own * share, total.rest * share, weights);
    } else {
      const float distance = logits.unit() * u_target - total.lse;
      const float sum = 1.f + (total.lse - total.lse);  // 1, but NaN where lse is infinite
      set_amplitudes(total.lse / logits.unit(), sum, sum, exponential(distance), -expm1(distance), weights);
    }
  }

  CE_DEVICE void record() const {
    if constexpr (forward) {
      if (leader) put_results();
      if constexpr (problem::sums && problem::fuses_sums) sum_losses(arguments, leader);
    }
  }

  CE_DEVICE bool fast() const { return probability.fast<Element>(); }
  template <class Tile>
  CE_DEVICE bool simple(const Tile& tile) const {
    return logits.near_zero_under_cap(tile);
  }
  template <bool is_fast, int n>
  CE_DEVICE Vector<Element, n> apply(const Elements<Element, n>& elements, int column) const {
    if constexpr (needs_all_rows)
      if (dead) return Vector<Element, n>::filled(dead_value);
    float x[n], slope[n];
    if constexpr (caps)
      logits.template take_out<is_fast>(elements.of_input[0], x, slope);
    else
      elements.of_input[0].values(x);
    probability.apply<is_fast, Element>(x);
    if constexpr (problem::probabilities || problem::smoothing) {
      float w[n];
      weights.at(column, w);
      if constexpr (problem::probabilities) {
        float p[n];
        smoothed(elements.of_input[1], p);
#pragma unroll
        for (int k = 0; k < n; ++k) x[k] -= per_probability * w[k] * p[k];
      } else {
#pragma unroll
        for (int k = 0; k < n; ++k) x[k] = multiply_add(-per_class, w[k], x[k]);
      }
    }
    if constexpr (caps) {
#pragma unroll
      for (int k = 0; k < n; ++k) x[k] *= slope[k];
    }
    return Vector<Element, n>::of(x);
  }

  CE_DEVICE int target_column() const { return target; }
  CE_DEVICE Vector<Element, 1> target_output() const { return Vector<Element, 1>::filled(at_target); }

 private:
  CE_DEVICE static bool is_class(int64 index) { return index >= 0 && index < problem::columns; }
  CE_DEVICE auto transform() const {
    if constexpr (Logits::bounded)
      return logits;
    else
      return Identity{};
  }

  /// Everything that `apply` needs: upstream, divisors and the slope of a logit without a cap are put into
  /// the factors.
  /// \param sum       of the exponentials with respect to `max`, and `share` 1 / sum
  /// \param q_target  probability of the target, and `others` of all other classes
  CE_DEVICE void set_amplitudes(float max, float sum, float share, float q_target, float others,
                                float weights) {
    if constexpr (!has_output) return;
    const auto [per_row, per_weight, smoothing_per_class] = common;
    const float e = problem::smoothing ? arguments.smoothing : 0.f;
    const float up = early.upstream * logits.scale;
    const float z_part = problem::z_loss ? 2.f * arguments.z_scale * total.lse * per_row * up : 0.f;
    per_probability = up * per_row;
    per_class = smoothing_per_class * up;
    if constexpr (problem::probabilities) {
      set_probability(max, sum, share, weights * per_probability + z_part);
    } else {
      const float hard = (1.f - e) * early.weight * per_weight * up;
      const float smooth = problem::smoothing ? per_class * weights : 0.f;
      const float amplitude = hard + smooth + z_part, own_class = per_class * early.weight;
      set_probability(max, sum, share, amplitude);
      at_target = q_target > 0.5f ? (smooth + z_part) * q_target - (hard * others + own_class)
                                  : multiply_add(amplitude, q_target, -(hard + own_class));
      if constexpr (problem::softcap) at_target *= target_slope;
    }
  }
  /// In the units that exponents and slopes have in what is under the cap.
  CE_DEVICE void set_probability(float max, float sum, float share, float amplitude) {
    if constexpr (Logits::bounded) {
      const float unit = logits.unit_under_cap(), per_slope = 1.f / (unit * unit);
      probability =
          Probability::of<Element>(product(max, unit), sum, share, factor() / unit, amplitude * per_slope);
      per_probability *= per_slope;
      per_class *= per_slope;
    } else {
      probability = Probability::of<Element>(max, sum, share, factor(), amplitude);
    }
  }

  /// (1 - e) p + e / C
  template <int n>
  CE_DEVICE void smoothed(const Vector<Element, n>& probabilities, float (&p)[n]) const {
    probabilities.values(p);
    if constexpr (problem::smoothing) {
#pragma unroll
      for (int k = 0; k < n; ++k)
        p[k] = multiply_add(1.f - arguments.smoothing, p[k], arguments.smoothing / problem::columns);
    }
  }

  /// What vector i of the tile counts: weights, times probabilities.
  template <class Tile, int n>
  CE_DEVICE void factors(const Tile& tile, int i, float (&w)[n]) const {
    weights.at(tile.column_of(i), w);
    if constexpr (problem::probabilities) {
      float p[n];
      smoothed(tile.elements[i].of_input[1], p);
#pragma unroll
      for (int k = 0; k < n; ++k) w[k] *= p[k];
    }
  }
  template <int n>
  CE_DEVICE static float sum_of(const float (&w)[n]) {
    float sum = 0.f;
#pragma unroll
    for (int k = 0; k < n; ++k) sum += w[k];
    return sum;
  }
  template <int n>
  CE_DEVICE static float dot_of(const float (&w)[n], const float (&exponents)[n]) {
    float sum = 0.f;
#pragma unroll
    for (int k = 0; k < n; ++k) sum = multiply_add(w[k], exponents[k], sum);
    return sum;
  }
  /// Of a tile with logits so far below the maximum that an exponent overflows: to the base 2, where that of e does not,
  /// or of a class that has no weight.
  template <class Tile>
  CE_DEVICE float dot_of_logarithms(const Part& part, const Tile& tile) const {
    constexpr int count = sizeof(tile.elements) / sizeof(tile.elements[0]);
    const Exponent exponent(part.max, factor());
    float dot = 0.f;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (!tile.inside(i)) continue;
      float w[Tile::vec], x[Tile::vec];
      factors(tile, i, w);
      tile.elements[i].of_input[0].values(x);
#pragma unroll
      for (int k = 0; k < Tile::vec; ++k) dot += weigh(w[k], exponent.logarithm(x[k]));
    }
    return dot;
  }
  template <class Tile>
  CE_DEVICE void add_weights(Part& part, const Tile& tile) const {
    constexpr int count = sizeof(tile.elements) / sizeof(tile.elements[0]);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (!tile.inside(i)) continue;
      float w[Tile::vec];
      factors(tile, i, w);
      part.dot.value += sum_of(w);
    }
  }

  CE_DEVICE void put_results() const {
    if (!needs_all_rows && dead) {
      put_losses(dead_value, dead_value);
      if constexpr (problem::hit_out) arguments.hit[row] = 0;
      return;
    }
    const Part& part = total.part;
    const float e = problem::smoothing ? arguments.smoothing : 0.f;
    float loss = total.of_all;
    if constexpr (!problem::probabilities) {
      const float distance = u_target - finite_or_zero(part.max);
      loss = total.own > total.rest ? log1p(total.rest / total.own) : log_sum_less_target(distance);
      if constexpr (problem::weights) loss = weigh(early.weight, loss);
      if constexpr (problem::smoothing) loss = weigh(1.f - e, loss) + e / problem::columns * total.of_all;
    }
    const float z_loss = problem::z_loss ? arguments.z_scale * total.lse * total.lse : 0.f;
    put_losses(dead ? dead_value : loss, dead ? dead_value : z_loss);
    if constexpr (problem::lse_out) arguments.lse[row] = total.lse;
    if constexpr (Part::indices) {
      const int argmax = part.first_largest();
      if constexpr (problem::argmax_out) arguments.argmax[row] = argmax;
      if constexpr (problem::hit_out) arguments.hit[row] = target == argmax;
    }
  }
  /// log(sum) - z[t].
  /// \param u  of the target, less the maximum's
  CE_DEVICE float log_sum_less_target(float u) const {
    if (!problem::softcap || needs_maximum()) return multiply_add(-logits.unit(), u, total.log_sum);
    // Without a maximum both may be as large as the cap, and their difference small: of the sum's logarithm the integer
    // part, to the base 2, meets the target first. In f32 ln 2 is in two parts (Cody and Waite, 1980), and what that
    // difference rounds off (TwoSum, as in part.cuh) is added again.
    constexpr float to_integer = 0x1.8p23f, ln_2_high = 0x1.63p-1f, ln_2_low = -0x1.bd0106p-13f;
    const float c = factor(), sum = total.rest + total.own;
    const float t = (log2(sum) + to_integer) - to_integer, fraction = log(sum * exp2(-t));
    if constexpr (narrow) return multiply_add(multiply_add(-c, u, t), ln_2, fraction);
    const float z = product(c, u), low_of_z = multiply_add(c, u, -z), high = t * ln_2_high;
    const float difference = high - z, apart = difference - high;
    const float low = (high - (difference - apart)) - (z + apart) - low_of_z;
    return difference + (multiply_add(t, ln_2_low, fraction) + low);
  }
  CE_DEVICE void put_losses(float loss, float z_loss) const {
    if constexpr (problem::sums) {
      arguments.workspace->losses[row] = loss;
      if constexpr (problem::z_loss) arguments.workspace->losses[arguments.rows + row] = z_loss;
    } else {
      static_cast<problem::Loss*>(arguments.loss)[row] =
          from_float<problem::Loss>(problem::z_loss ? loss + z_loss : loss);
      if constexpr (problem::z_loss_out)
        static_cast<problem::Loss*>(arguments.z_loss)[row] = from_float<problem::Loss>(z_loss);
    }
  }
};

}  // namespace ce
