// Cross entropy, forward and backward. The contract is in row/operation.cuh.
//
// With z the logits (scaled_logits.cuh), lse = log sum exp z, q = exp(z - lse), C columns, smoothing e, class
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
// and is noted in the status. The backward operation, and losses whose lse the caller gives, read lse instead of finding it.
//
// Code that only some problems need is in files that only their sources include: a soft cap (logits.cuh), sums over few
// rows (fused_sums.cuh), the weights of all classes in shared memory (slice_weights.cuh), ranks
// (cross_entropy_ranks.cuh).
#pragma once
#include "operations/class_weights.cuh"
#include "operations/reduction.cuh"
#include "operations/scaled_logits.cuh"
#include "row/exponentials.cuh"

namespace ce {

/// With a gradient of the entropy, outputs are probability x (offset + slope x logarithm of the probability, base 2 or
/// e).
struct EntropyTerms {
  float offset = 0.f, slope = 0.f;
};

struct CrossEntropy : OperationDefaults {
  using Weight = problem::Weight;
  using ClassWeights = ce::ClassWeights;
  using Sums = SumsOf<problem::fuses_sums>;
  static constexpr bool forward = !problem::from_lse;
  using Stats = SoftmaxStats<cross_entropy_stats(forward, problem::probabilities, problem::smoothing,
                                                 problem::weights, problem::argmax_out || problem::hit_out,
                                                 problem::entropy_out || problem::entropy_upstream)>;
  /// Statistics contain sums over all classes of w z and w, or of w p' z and w p'.
  static constexpr bool class_sums = Stats::dots;
  static constexpr bool reduces = !problem::from_statistics && (forward || class_sums),
                        has_output = problem::gradient;
  static constexpr bool has_target = !problem::probabilities;
  static constexpr bool replaces_target = has_target && forward && !class_sums && !problem::softcap;
  static constexpr bool all_weights = problem::weights && (problem::smoothing || problem::probabilities);
  static constexpr bool caps = problem::softcap, some_simple = Logits::bounded;
  static constexpr bool entropy_gradient = problem::entropy_upstream;
  static constexpr bool exchanges = problem::exchanges;
  /// These outputs also exist for rows without a class.
  static constexpr bool needs_all_rows = problem::lse_out || problem::lse_low_out || problem::argmax_out;

  struct RowPrefetch {
    int64 index = 0;  ///< the target as given
    float upstream = 1.f;
    float weight = 1.f;                    ///< weight of the target
    float row_weight = 1.f;                ///< of the loss and the gradient
    float row_scale = 1.f;                 ///< of the logits
    float of_entropy = 0.f, of_lse = 0.f;  ///< upstream gradients of the entropy and of lse

    CE_DEVICE RowPrefetch() {}
    CE_DEVICE RowPrefetch(const Arguments& a, int64 r) {
      if constexpr (!problem::probabilities) index = target_of(a, r);
      if constexpr (problem::upstream_scalar || problem::upstream_rows)
        upstream = to_float(load_element<Load::ca>(static_cast<const problem::Loss*>(a.upstream) +
                                                   (problem::upstream_rows ? r : 0)));
      if constexpr (problem::row_weights) row_weight = a.row_weight[r];
      if constexpr (problem::row_scales) row_scale = a.row_scale[r];
      if constexpr (problem::entropy_upstream) of_entropy = a.entropy_upstream[r];
      if constexpr (problem::lse_upstream) of_lse = a.lse_upstream[r];
    }
    CE_DEVICE void look_up(const Arguments& a) {
      if constexpr (problem::weights && has_target)
        if (is_class(a, index)) weight = weight_of(a, index);
    }
  };

  using KernelScalars = Logits;

  /// Waits for ce_count, if there is one.
  struct BatchScalars {
    float per_row = 1.f, per_weight = 1.f;  ///< 1 / R, 1 / D
    float per_class = 0.f;                  ///< e / C / D

    CE_DEVICE BatchScalars() {}
    CE_DEVICE explicit BatchScalars(const Arguments& a) {
      if constexpr (problem::divisor) {
        per_row = per_weight = 1.f / *a.divisor;
      } else if constexpr (problem::mean) {
        const Counted counted = counted_rows(a);
        per_row = 1.f / float(counted.rows);
        per_weight = problem::counts_first && weighted_mean ? 1.f / counted.weight : per_row;
      }
      if constexpr (problem::smoothing)
        per_class = a.amounts[problem::smoothing_amount] / class_count(a) * per_weight;
    }

   private:
    CE_DEVICE static Counted counted_rows(const Arguments& a) {
      if constexpr (!problem::counts_first) return {a.rows};
      return Sums::counted(a);
    }
  };

  const Arguments& arguments;
  const int64 row;
  const bool leader;
  Logits logits;
  bool is_scaled = true;  ///< the row's scale is valid
  ClassWeights weights;   ///< weights of all classes; a Variant may store them elsewhere
  int target = nowhere;   ///< column of the target
  float u_target = 0.f, target_slope = 1.f;
  BatchScalars batch;
  bool dead = false;  ///< outputs are `dead_value`
  float dead_value = 0.f;

  /// Results of the whole row, for store_row_results().
  struct Total {
    Stats stats;
    float own = 0.f,
          rest = 0.f;  ///< exponentials of the target and of all others, relative to the maximum
    float log_sum, lse;
    float of_all;         ///< sum over the classes of w (lse - z), or of w p' (lse - z)
    float logprob = 0.f;  ///< log-probability of the target
    float entropy = 0.f;
    float row_factor = 1.f;  ///< of loss and gradient: the row's weight times the token scaling
  } total;
  Probability probability;
  float at_target, per_class, per_probability;  ///< the latter two in the units of slopes
  EntropyTerms of_entropy;

  /// Whether the sum of weights of the tile that is added is known, which is equal for every row.
  bool knows_weight = false;
  float tile_weight = 0.f;

  RowPrefetch prefetch;

  CE_DEVICE CrossEntropy(const Arguments& a, int64 r, bool l, const RowPrefetch& e,
                         const KernelScalars& kernel_scalars)
      : arguments(a),
        row(r),
        leader(l),
        logits(kernel_scalars.of_row(e.row_scale)),
        weights{ClassWeights::in_memory(a)},
        prefetch(e) {
    if constexpr (problem::row_scales) is_scaled = kernel_scalars.is_scale(e.row_scale);
    if constexpr (problem::sums && !problem::fuses_sums) step_release();  // for ce_sum
  }
  CE_DEVICE CrossEntropy(const Arguments& a, int64 r, bool l)
      : CrossEntropy(a, r, l, RowPrefetch(a, r), KernelScalars(a)) {}

  /// For writing outputs of rows that other threads have finalized (finalized_row.cuh).
  CE_DEVICE explicit CrossEntropy(const Arguments& a)
      : arguments(a), row(0), leader(false), logits(a), weights{ClassWeights::in_memory(a)} {}
  CE_DEVICE static float padding() { return -infinity(); }
  CE_DEVICE float exponent_factor() const { return exponent_of_e * logits.unit(); }
  CE_DEVICE auto transform() const {
    if constexpr (Logits::bounded)
      return logits;
    else
      return Identity{};
  }

  CE_DEVICE bool constant(float& value) {
    if constexpr (problem::probabilities) return false;
    const bool ignored = prefetch.index == arguments.ignore_index;
    if (!ignored && is_class(arguments, prefetch.index)) {
      target = column_of(prefetch.index);
      return false;
    }
    value = dead_value = ignored ? 0.f : not_a_number();
    dead = true;
    if (leader && !ignored && (!problem::sharded || problem::losses)) {
      atomic_add(&arguments.status->count, 1);
      const int64 index = prefetch.index, known = index < least_bad_target  ? least_bad_target
                                                  : index > most_bad_target ? most_bad_target
                                                                            : index;
      atomic_min(&arguments.status->first, (row << bad_target_bits) + known - least_bad_target);
    }
    if constexpr (needs_all_rows) return false;
    if constexpr (problem::counts_first && !problem::fuses_sums)
      step_wait();  // no row kernel ends before ce_count
    return true;
  }

  /// The logit of the target, as stored in memory.
  CE_DEVICE Element target_logit(const Row<Element>& data) const {
    return target == nowhere || problem::from_statistics ? Element{} : data.logit(target);
  }

  CE_DEVICE void prepare() {
    prefetch.look_up(arguments);
    prepare(BatchScalars(arguments));
  }
  CE_DEVICE void prepare(const BatchScalars& of_all_rows) {
    batch = of_all_rows;
    if constexpr (!forward) total.lse = if_scaled(problem::lse_of(arguments)[row]);
  }
  CE_DEVICE void set_target(Element logit) {
    if (target == nowhere || problem::from_statistics) return;
    const Transformed transformed = logits.of_target(to_float(logit));
    u_target = transformed.u;
    target_slope = transformed.slope;
  }

  template <class Tile>
  CE_DEVICE void cap(Tile& tile) const {
    logits.put_under_cap(tile);
  }
  CE_DEVICE bool needs_maximum() const { return !caps || logits.need_maximum; }
  template <class Tile>
  CE_DEVICE float maximum_of(const Tile& tile) const {
    return logits.of(largest_of(tile));
  }

  /// Whether a full tile without the target may be added as a plain one, if no maximum is needed.
  template <class Tile>
  CE_DEVICE bool takes_plainly(const Tile& tile) const {
    return logits.near_zero(tile);
  }
  /// The tile's sum for add() apart from exponentials.
  template <class Tile>
  CE_DEVICE float weights_of(const Tile& tile) const {
    Stats stats;
    add_weights(stats, tile);
    return stats.dot.value;
  }
  template <class Tile>
  CE_DEVICE bool add(Stats& stats, Tile& tile) const {
    if constexpr (caps && !(forward && Logits::bounded)) cap(tile);
    if constexpr (!forward) {
      if (knows_weight)
        stats.dot.value += tile_weight;
      else
        add_weights(stats, tile);
      return simple(tile);
    } else if constexpr (class_sums) {
      float dot = 0.f;
      const bool are_simple = add_exponentials(stats, tile, transform(), exponent_factor(), target,
                                               [&](int i, const float(&exponents)[Tile::vec]) {
                                                 float w[Tile::vec];
                                                 class_factors(tile, i, w);
                                                 const float sum = dot_of(w, exponents);
                                                 dot = i == 0 && Tile::is_plain ? sum : dot + sum;
                                                 if (!knows_weight) stats.weight.value += sum_of(w);
                                               });
      // A plain tile under a cap changes no maximum, and its caller, which knows the tile's weight, adds that of the
      // row.
      if (knows_weight && !(Logits::bounded && Tile::is_plain)) stats.weight.value += tile_weight;
      dot = product(dot, 1.f / exponent_of_e);
      if constexpr (!Logits::bounded && (narrow || problem::weights || problem::probabilities))
        if (!is_finite(dot)) dot = dot_of_logarithms(stats, tile);
      stats.dot.value += dot;
      return are_simple;
    } else if constexpr (Logits::bounded) {
      return add_exponentials(stats, tile, transform(), exponent_factor(), target, NoVisitor{});
    } else {
      if constexpr (has_target) tile.replace(target, padding());
      return add_exponentials(stats, tile, exponent_factor());
    }
  }

  CE_DEVICE void finalize(const Stats& found) { finalize_row(found); }

  CE_DEVICE void store_row_results() const {
    if constexpr (problem::losses) {
      if (leader) put_results();
      if constexpr (problem::sums) Sums::add(arguments, leader);
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
    if constexpr (entropy_gradient)
      probability.apply_with_logarithm<is_fast, Element>(x, of_entropy.offset, of_entropy.slope);
    else
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

 protected:
  CE_DEVICE void finalize_row(const Stats& stats) {
    // Without a gradient, the rest is only for the row's results, which the leader stores.
    if (!has_output && !leader) return;
    float weights = class_count(arguments);  // sum of w, or of w p'
    if constexpr (class_sums && (problem::weights || problem::probabilities))
      weights = (forward ? stats.weight : stats.dot).total();
    if constexpr (forward) {
      const Exponent exponent(stats.max, exponent_factor());
      const float unit = Exponent::power(exponent.at_maximum()), per_unit = reciprocal(unit);
      // Quotients of equal numbers are exactly 1: the entropy of an almost certain row also depends on this sum.
      const auto relative = [&](float powers) {
        return Stats::moments && narrow ? quotient(powers, unit, per_unit) : exponent.relative(powers);
      };
      if (adds_target()) total.own = relative(Exponent::power(exponent_of(exponent, u_target)));
      total.rest = if_scaled(relative(stats.sum));
      const float sum = total.rest + total.own;
      total.stats = stats;
      if constexpr (Stats::indices)
        if (u_target != u_target) total.stats.observe_nan(target_class());  // the sum leaves it out
      total.log_sum = log(sum);
      // A single class has loss 0: its terms are computed in the same way on both sides.
      total.of_all = multiply_add(
          total.log_sum, weights,
          product(product(weights, exponent.at_maximum()), 1.f / exponent_of_e) - stats.dot.total());
      total.lse = logits.unit() * stats.max + total.log_sum;
      find_target_results(adds_target() ? exponent_of(exponent, u_target) : 0.f, exponent.at_maximum(),
                          stats);
      const float share = narrow ? reciprocal(sum) : 1.f / sum;
      set_amplitudes(stats.max, sum, share, total.own * share, total.rest * share, weights);
    } else {
      // The reference is lse as a logit instead of the maximum, and the sum is the rounding error of that: about 1, but
      // NaN if lse is infinite.
      const float reference = total.lse / logits.unit();
      total.log_sum = multiply_add(-logits.unit(), reference, total.lse);
      const float rounded_off = absolute(total.log_sum);
      float distance = multiply_add(logits.unit(), u_target, -total.lse);
      if constexpr (problem::saved_lse_low) {
        const float low = problem::lse_low_of(arguments)[row];
        total.log_sum += low;
        distance -= low;
      }
      // Another block may have overwritten the target's logit, and lse alone lacks the bits that f32 has rounded off.
      if constexpr (problem::saved_logprob) distance = problem::logprob_of(arguments)[row];
      total.logprob = distance;
      if constexpr (entropy_gradient) total.entropy = problem::entropy_of(arguments)[row];
      find_row_factor();
      // An lse so large (beyond 10^9) that its rounding exceeds this bound is unknown.
      const bool known = rounded_off < 0x1p12f && absolute(total.log_sum) < 80.f;
      const float sum = known ? exponential(total.log_sum) : not_a_number();
      set_amplitudes(reference, sum, 1.f / sum, exponential(distance), -expm1(distance), weights);
    }
  }

 private:
  /// The value, or NaN for a row with an invalid scale.
  CE_DEVICE float if_scaled(float value) const {
    if constexpr (problem::row_scales) return is_scaled ? value : not_a_number();
    return value;
  }
  /// Whether the statistics lack the target's exponential.
  CE_DEVICE bool adds_target() const {
    return problem::from_statistics || problem::exchanges ? has_target && !dead : target != nowhere;
  }
  /// The target among all classes.
  CE_DEVICE int target_class() const { return problem::exchanges && !dead ? int(prefetch.index) : target; }
  CE_DEVICE static bool is_class(const Arguments& arguments, int64 index) {
    return index >= 0 && index < class_count(arguments);
  }
  /// The column of a class: `nowhere` if another shard has it.
  CE_DEVICE int column_of(int64 index) const {
    if constexpr (!problem::sharded || problem::merges) return int(index);
    const int64 column = index - arguments.first_class;
    return column >= 0 && column < problem::columns ? int(column) : nowhere;
  }

  /// Computes everything that `apply` needs: upstream gradient, divisors and the slope of a logit without a cap are
  /// included in the factors.
  /// \param sum       sum of the exponentials relative to `max`, and `share` 1 / sum
  /// \param q_target  probability of the target, and `others` of all other classes
  CE_DEVICE void set_amplitudes(float max, float sum, float share, float q_target, float others,
                                float weights) {
    if constexpr (!has_output) return;
    const auto [per_row, per_weight, smoothing_per_class] = batch;
    const float e = problem::smoothing ? arguments.amounts[problem::smoothing_amount] : 0.f;
    const float up = prefetch.upstream * logits.scale * total.row_factor;
    const float of_lse = problem::lse_upstream ? prefetch.of_lse * logits.scale : 0.f;
    const float z_scale = arguments.amounts[problem::z_loss_amount];
    const float z_part = (problem::z_loss ? 2.f * z_scale * total.lse * per_row * up : 0.f) + of_lse;
    per_probability = up * per_row;
    per_class = smoothing_per_class * up;
    if constexpr (problem::probabilities) {
      set_probability(max, sum, share, weights * per_probability + z_part);
    } else {
      // The amplitude's parts: of the target's term, of smoothing, and (z_part) of the z-loss and lse.
      const float hard = (1.f - e) * prefetch.weight * per_weight * up;
      const float smooth = problem::smoothing ? per_class * weights : 0.f;
      const float amplitude = hard + smooth + z_part, own_class = per_class * prefetch.weight;
      set_probability(max, sum, share, amplitude);
      at_target = q_target > 0.5f ? (smooth + z_part) * q_target - (hard * others + own_class)
                                  : multiply_add(amplitude, q_target, -(hard + own_class));
      if constexpr (entropy_gradient)
        at_target -= prefetch.of_entropy * logits.scale * moment_of(q_target, total.logprob + total.entropy);
      if constexpr (problem::softcap) at_target *= target_slope;
    }
  }
  /// Sets the probability, in the units of exponents and slopes under a cap.
  CE_DEVICE void set_probability(float max, float sum, float share, float amplitude) {
    if constexpr (Logits::bounded) {
      const float unit = logits.unit_under_cap(), per_slope = 1.f / (unit * unit);
      set_probability(product(max, unit), sum, share, exponent_factor() / unit, amplitude, per_slope);
      per_probability *= per_slope;
      per_class *= per_slope;
    } else {
      set_probability(max, sum, share, exponent_factor(), amplitude, 1.f);
    }
  }
  CE_DEVICE void set_probability(float max, float sum, float share, float factor, float amplitude,
                                 float per_slope) {
    if constexpr (entropy_gradient) {
      probability = Probability::of<Element>(max, sum, share, factor, 1.f);
      const float of_rows = prefetch.of_entropy * logits.scale;
      of_entropy = {(amplitude - of_rows * total.entropy) * per_slope, -of_rows * per_slope};
      probability.set_logarithm<Element>(total.log_sum);
    } else {
      probability = Probability::of<Element>(max, sum, share, factor, amplitude * per_slope);
    }
  }
  /// Computes the row's results and gradients that depend on its target and its entropy, once log_sum is known.
  /// \param own      the target's exponent, which the statistics leave out
  /// \param largest  the exponent of the maximum, which is 0 apart from rounding; the entropy of an almost certain row
  /// would otherwise be that rounding error
  CE_DEVICE void find_target_results(float own, float largest, const Stats& stats) {
    if constexpr (Stats::moments) {
      float moment = stats.of_exponentials(), powers = stats.sum;
      if (adds_target()) {
        moment += moment_of(Exponent::power(own), own);
        powers += Exponent::power(own);
      }
      const float mean = quotient(moment, powers, reciprocal(powers));
      total.entropy = if_scaled(total.log_sum - (mean - largest) * (1.f / exponent_of_e));
    }
    if constexpr (has_target)
      total.logprob = total.own > total.rest
                          ? -log1p(total.rest / total.own)
                          : -logits.log_sum_less_target(u_target - finite_or_zero(stats.max),
                                                        total.rest + total.own, total.log_sum);
    find_row_factor();
  }
  CE_DEVICE void find_row_factor() {
    if constexpr (problem::row_weights) total.row_factor = prefetch.row_weight;
    if constexpr (problem::token_scaling) {
      // A power far below 1 counts as 0.
      const float power = arguments.amounts[problem::token_scaling_amount] * total.logprob;
      total.row_factor *= power < -32.f ? 0.f : exponential(power);
    }
  }

  /// Computes (1 - e) p + e / C.
  template <int n>
  CE_DEVICE void smoothed(const Vector<Element, n>& probabilities, float (&p)[n]) const {
    probabilities.values(p);
    if constexpr (problem::smoothing) {
      const float e = arguments.amounts[problem::smoothing_amount];
#pragma unroll
      for (int k = 0; k < n; ++k) p[k] = multiply_add(1.f - e, p[k], e / class_count(arguments));
    }
  }

  /// The factors of vector i of the tile: weights, times probabilities.
  template <class Tile, int n>
  CE_DEVICE void class_factors(const Tile& tile, int i, float (&w)[n]) const {
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
  /// The dot of a tile with logits so far below the maximum that an exponent overflows (in base 2; in base e it does
  /// not), or with a class without weight.
  template <class Tile>
  CE_DEVICE float dot_of_logarithms(const Stats& stats, const Tile& tile) const {
    constexpr int count = sizeof(tile.elements) / sizeof(tile.elements[0]);
    const Exponent exponent(stats.max, exponent_factor());
    float dot = 0.f;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (!tile.inside(i)) continue;
      float w[Tile::vec], x[Tile::vec];
      class_factors(tile, i, w);
      tile.elements[i].of_input[0].values(x);
#pragma unroll
      for (int k = 0; k < Tile::vec; ++k) dot += weigh(w[k], exponent.logarithm(x[k]));
    }
    return dot;
  }
  template <class Tile>
  CE_DEVICE void add_weights(Stats& stats, const Tile& tile) const {
    constexpr int count = sizeof(tile.elements) / sizeof(tile.elements[0]);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (!tile.inside(i)) continue;
      float w[Tile::vec];
      class_factors(tile, i, w);
      stats.dot.value += sum_of(w);
    }
  }

  CE_DEVICE void put_results() const {
    if (!needs_all_rows && dead) {
      put_losses(dead_value, dead_value);
      if constexpr (problem::logprob_out) problem::logprob_of(arguments)[row] = dead_value;
      if constexpr (problem::entropy_out) problem::entropy_of(arguments)[row] = dead_value;
      if constexpr (problem::hit_out) problem::hit_of(arguments)[row] = 0;
      return;
    }
    const Stats& stats = total.stats;
    const float e = problem::smoothing ? arguments.amounts[problem::smoothing_amount] : 0.f;
    float loss = forward ? total.of_all : 0.f;
    if constexpr (!problem::probabilities) {
      loss = -total.logprob;
      if constexpr (problem::weights) loss = weigh(prefetch.weight, loss);
      if constexpr (problem::smoothing)
        loss = weigh(1.f - e, loss) + e / class_count(arguments) * total.of_all;
    }
    float z_loss = problem::z_loss ? arguments.amounts[problem::z_loss_amount] * total.lse * total.lse : 0.f;
    if constexpr (problem::row_weights || problem::token_scaling) {
      loss = weigh(total.row_factor, loss);
      z_loss = weigh(total.row_factor, z_loss);
    }
    put_losses(dead ? dead_value : loss, dead ? dead_value : z_loss);
    if constexpr (problem::logprob_out)
      problem::logprob_of(arguments)[row] = dead ? dead_value : total.logprob;
    if constexpr (problem::entropy_out)
      problem::entropy_of(arguments)[row] = dead ? dead_value : total.entropy;
    if constexpr (problem::lse_out) problem::lse_of(arguments)[row] = total.lse;
    if constexpr (problem::lse_low_out)
      problem::lse_low_of(arguments)[row] =
          multiply_add(logits.unit(), stats.max, -total.lse) + total.log_sum;
    if constexpr (Stats::indices) {
      const int argmax = stats.first_largest();
      if constexpr (problem::argmax_out) problem::argmax_of(arguments)[row] = argmax;
      if constexpr (problem::hit_out) problem::hit_of(arguments)[row] = target_class() == argmax;
    }
  }
  CE_DEVICE void put_losses(float loss, float z_loss) const {
    if constexpr (problem::sums) {
      arguments.workspace->losses[row] =
          losses_mark_counted ? loss_to_sum(loss, prefetch.index != arguments.ignore_index) : loss;
      if constexpr (problem::z_loss) arguments.workspace->losses[arguments.rows + row] = z_loss;
    } else {
      static_cast<problem::Loss*>(arguments.loss)[row] =
          from_float<problem::Loss>(problem::z_loss ? loss + z_loss : loss);
      if constexpr (problem::z_loss_out)
        problem::z_loss_out_of(arguments)[row] = from_float<problem::Loss>(z_loss);
    }
  }
};

static_assert(RowOperation<CrossEntropy>);

}  // namespace ce
