#include "tuner/verify/shard_statistics.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tuner/verify/special_values.hpp"

namespace ce::generator {
namespace {

constexpr std::int64_t two_to_31 = std::int64_t{1} << 31;
constexpr double ln_2 = 0.693147180559945309417;

bool is_narrow(const Problem& problem) { return problem.dtype != DType::f32; }
bool has_dots(const Problem& problem) { return problem.probabilities || problem.has.smoothing; }
bool has_indices(const Problem& problem) { return problem.has.argmax_out || problem.has.hit_out; }
bool has_moment(const Problem& problem) { return problem.has.entropy_out || problem.has.entropy_upstream; }

/// The exponent of a logit (templates/row/exponent.cuh).
struct Exponents {
  float unit, c;  ///< z = unit u; the exponent is c u minus that of the shift
  bool to_base_two;

  Exponents(const Problem& problem, float unit_of_row)
      : unit(unit_of_row),
        c((is_narrow(problem) ? 1.4426950408889634f : 1.f) * unit),
        to_base_two(is_narrow(problem)) {}
  /// The value of z to subtract, if u is at its maximum.
  [[nodiscard]] double shift(float max) const {
    const float finite = max == -std::numeric_limits<float>::infinity() ? 0.f : max;
    const double largest = static_cast<double>(finite) * static_cast<double>(unit);
    const float s = finite * c;
    if (!to_base_two || std::abs(s) >= 0x1p30f) return largest;
    // Exponents are c u - s; that of the maximum is not exactly 0.
    return largest - (static_cast<double>(finite) * static_cast<double>(c) - static_cast<double>(s)) * ln_2;
  }
  /// The factor from exponents to the base e.
  [[nodiscard]] double of_e() const { return to_base_two ? 1 / ln_2 : 1; }
};

/// Calls visit(member) for each quantity; for a member of two words, visit(member, true).
template <class Visit>
void each_quantity(const Problem& problem, const Visit& visit) {
  const bool sums = !is_narrow(problem);
  if (!problem.probabilities) visit(&ShardStatistics::target, false);
  if (!problem.probabilities && problem.has.softcap) visit(&ShardStatistics::slope, false);
  visit(&ShardStatistics::lse, true);
  if (has_dots(problem)) visit(&ShardStatistics::dot, sums), visit(&ShardStatistics::weight, sums);
  if (has_moment(problem)) visit(&ShardStatistics::entropy, false);
}

double plain(double x) { return std::isfinite(x) || x == -infinity ? x : not_a_number; }
/// The logarithm of a sum of exponentials; -infinity if f32 may lose it beside a much larger maximum.
double known(double log_sum) {
  constexpr double least =
      -85.25;  // logits under a trial's cap differ by less; below e^-87 f32 loses precision
  return log_sum < least ? -infinity : log_sum;
}
/// For a shard with NaN or +infinity, only the argmax is meaningful.
bool is_broken(double max, double log_sum) {
  return !(std::isfinite(max) || max == -infinity) || std::isnan(log_sum) || log_sum == infinity;
}

/// A row with an invalid scale has the words of scale 1: the merge kernel makes the row NaN.
double scale_of_row(double scale, double row_scale) {
  const double product = scale * row_scale;
  return is_scale(product) ? product : 1;
}

}  // namespace

ShardStatistics shard_statistics(const CrossEntropyInputs& in, std::int64_t row, std::int64_t first,
                                 std::int64_t count) {
  const auto at = static_cast<std::size_t>(row * in.columns);
  const double scale =
      scale_of_row(in.amounts[&CrossEntropyFlags::scale],
                   in.row_scales.empty() ? 1. : in.row_scales[static_cast<std::size_t>(row)]);
  const double cap = in.amounts[&CrossEntropyFlags::softcap],
               smoothing = in.amounts[&CrossEntropyFlags::smoothing];
  const std::int64_t target = in.targets.empty() ? -1 : in.targets[static_cast<std::size_t>(row)];
  ShardStatistics of{.target = -infinity, .largest = -infinity, .argmax = two_to_31 - 1};
  of.max = of.lse = of.log_sum = -infinity;
  std::vector<double> left, shares, all;
  for (std::int64_t column = first; column < first + count; ++column) {
    const auto i = static_cast<std::size_t>(column);
    const double x = in.logits[at + i], y = scale * x / cap;
    const double z = cap > 0 ? cap * std::tanh(y) : scale * x;
    of.max = std::max(of.max, z);
    const double weight = in.weights.empty() ? 1. : in.weights[i],
                 share = in.probabilities.empty() ? weight
                                                  : weight * ((1 - smoothing) * in.probabilities[at + i] +
                                                              smoothing / static_cast<double>(in.columns));
    of.weight += share;
    if (share != 0) of.dot += share * z;
    shares.push_back(share);
    all.push_back(z);
    // The target's own NaN is detected by the merge.
    if (std::isnan(x) ? of.argmax >= 0 && column != target : x > of.largest && of.argmax >= 0) {
      of.largest = std::isnan(x) ? infinity : x;
      of.argmax = std::isnan(x) ? column - two_to_31 : column;
    }
    if (column == target) {
      of.target = z;
      if (cap > 0) of.slope = 1 / (std::cosh(y) * std::cosh(y));
    } else {
      left.push_back(z);
    }
  }
  const double shift = of.max == -infinity ? 0 : of.max;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (shares[i] != 0) of.dot_below += shares[i] * (all[i] - shift);
  double sum = 0, moment = 0;
  for (const double each : left) {
    const double power = std::exp(each - shift);
    sum += power;
    if (power != 0) moment += power * (each - shift);
  }
  of.log_sum = known(std::log(sum));
  of.lse = shift + of.log_sum;
  of.entropy = of.log_sum == -infinity ? not_a_number : std::log(sum) - moment / sum;
  return of;
}

float unit_of(const Problem& problem, const Arguments& arguments, double row_scale) {
  if (problem.has.softcap) return amount_of(&CrossEntropyFlags::softcap, arguments);
  return static_cast<float>(scale_of_row(
      problem.has.scale ? static_cast<double>(amount_of(&CrossEntropyFlags::scale, arguments)) : 1.,
      row_scale));
}

std::vector<std::uint32_t> words_of(const ShardStatistics& row, const Problem& problem, float unit) {
  const Exponents exponents(problem, unit);
  const float max = static_cast<float>(row.max / static_cast<double>(exponents.unit));
  const double shift = exponents.shift(max), maximum = row.max == -infinity ? 0 : row.max;
  const double log_sum = row.log_sum + (maximum - shift), sum = std::exp(log_sum);
  std::vector<std::uint32_t> words;
  const auto put = [&](double value) {
    words.push_back(std::bit_cast<std::uint32_t>(static_cast<float>(value)));
  };
  each_quantity(problem, [&](double ShardStatistics::*quantity, bool two) {
    if (quantity == &ShardStatistics::lse) {
      put(static_cast<double>(max));
      put(sum);
      return;
    }
    if (quantity == &ShardStatistics::target)
      put(row.target / static_cast<double>(exponents.unit));
    else if (quantity == &ShardStatistics::dot)
      put(row.dot_below + row.weight * (maximum - shift));
    else if (quantity == &ShardStatistics::entropy)
      put(sum == 0 ? 0 : sum * (log_sum - row.entropy) * exponents.of_e());
    else
      put(row.*quantity);
    if (two) put(0);
  });
  if (has_indices(problem)) {
    put(row.largest);
    words.push_back(static_cast<std::uint32_t>(row.argmax));
  }
  return words;
}

std::vector<double> quantities_of(const ShardStatistics& row, const Problem& problem) {
  std::vector<double> quantities;
  each_quantity(problem, [&](double ShardStatistics::*quantity, bool two) {
    const bool of_target = quantity == &ShardStatistics::target || quantity == &ShardStatistics::slope;
    quantities.push_back(!of_target && is_broken(row.max, row.log_sum) ? not_a_number : plain(row.*quantity));
    if (two) quantities.push_back(0);
  });
  if (has_indices(problem)) {
    quantities.push_back(row.largest);
    quantities.push_back(static_cast<double>(row.argmax));
  }
  return quantities;
}

void read_quantities(std::span<const std::uint32_t> words, const Problem& problem, float unit,
                     std::span<double> quantities) {
  const Exponents exponents(problem, unit);
  std::size_t next = 0;
  const auto get = [&] { return static_cast<double>(std::bit_cast<float>(words[next++])); };
  double shift = 0, sum = 0, dot = 0;
  bool broken = false;
  std::size_t of_dot = 0;
  each_quantity(problem, [&](double ShardStatistics::*quantity, bool two) {
    const std::size_t index = next;
    double value = get();
    if (quantity == &ShardStatistics::lse) {
      shift = exponents.shift(static_cast<float>(value));
      sum = get();
      broken = is_broken(value, std::log(sum));
      value = shift + known(std::log(sum));
    } else if (quantity == &ShardStatistics::target) {
      value *= static_cast<double>(exponents.unit);
    } else if (two) {
      if (const double low = get(); !std::isnan(low)) value += low;
    }
    if (quantity == &ShardStatistics::dot) {
      dot = value;
      of_dot = index;
    } else if (quantity == &ShardStatistics::weight) {
      quantities[of_dot] = broken ? not_a_number : plain(dot + value * shift);
    } else if (quantity == &ShardStatistics::entropy) {
      value =
          known(std::log(sum)) == -infinity ? not_a_number : std::log(sum) - value / sum / exponents.of_e();
    }
    quantities[index] = plain(value);
    if (broken) quantities[index] = not_a_number;
    if (quantity == &ShardStatistics::dot) quantities[index] = 0;  // set when its weight is known
    for (std::size_t second = index + 1; second < next; ++second) quantities[second] = 0;
  });
  if (has_indices(problem)) {
    quantities[next] = static_cast<double>(std::bit_cast<float>(words[next]));
    quantities[next + 1] = static_cast<double>(static_cast<std::int32_t>(words[next + 1]));
  }
}

}  // namespace ce::generator
