#include "tuner/verify/trial_values.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "tuner/verify/special_values.hpp"

namespace ce::generator {
namespace {

constexpr double deviation = 2;

/// The first class with weight 0; every eighth class after it has it, too.
constexpr std::size_t class_without_weight = 3;

/// A fraction of the dtype's lowest value. In bf16, that is a logit whose product with log2(e) overflows f32.
constexpr double share_of_lowest = 0.75;

const std::array<double, 4096>& normals() {
  static const std::array<double, 4096> table = [] {
    std::array<double, 4096> values{};
    std::mt19937_64 random(1);
    std::normal_distribution<double> normal(0., deviation);
    for (double& value : values) value = normal(random);
    return values;
  }();
  return table;
}

double& any_of(std::span<double> row, Random& random) {
  return row[static_cast<std::size_t>(random.below(std::ssize(row)))];
}

}  // namespace

void fill_normal(std::span<double> row, Random& random) {
  const auto& table = normals();
  for (double& x : row) x = table[random.next() >> 52];
}

void fill_extreme(std::span<double> row, std::int64_t index, const Extremes& extremes, Random& random) {
  fill_normal(row, random);
  double& any = any_of(row, random);
  const double largest = extremes.largest;
  switch (index % 8) {
    case 0:
      for (double& x : row) x = x > 0 ? largest : -largest;
      break;
    case 1:
      for (double& x : row) x *= extremes.saturating ? 3 : largest / 100;
      break;
    case 2:  // whole threads and warps see only masked values, in one of the usual ways
      for (double& x : row)
        if (&x != &any)
          x = std::array{-infinity, extremes.lowest, share_of_lowest * extremes.lowest}[index / 8 % 3];
      break;
    case 3: std::ranges::fill(row, -infinity); break;
    case 4: std::ranges::fill(row, -largest); break;
    case 5: any = not_a_number; break;
    case 6:  // also under a cap no larger than the saturating logit
      if (extremes.saturating) any_of(row, random) = largest;
      any = infinity;
      break;
    case 7:  // a probability next to 1; and a masked class with weight 0
      any = 60;
      if (row.size() > class_without_weight && &row[class_without_weight] != &any)
        row[class_without_weight] = index / 8 % 2 == 0 ? -infinity : extremes.lowest;
      break;
  }
}

double large_logit(DType dtype) noexcept { return dtype == DType::f16 ? 3e4 : 1e30; }

void fill_confident(std::span<double> row, double nines, std::int64_t target, Random& random) {
  fill_normal(row, random);
  constexpr double narrowed = 0.5 / deviation;
  // The expected sum of exponentials of the others, of standard deviation 1/2, is (C - 1) exp(1/8).
  const double others = std::log(std::max(1., static_cast<double>(row.size() - 1))) + 0.125;
  const double gap = others + nines * std::log(10.);
  for (double& z : row) z = narrowed * z - gap / 2;
  row[static_cast<std::size_t>(target)] = gap / 2;
}

void fill_probabilities(std::span<double> row, std::int64_t index, Random& random) {
  if (index % 2 == 0) {
    fill_normal(row, random);
    const double expected_sum = deviation * deviation * static_cast<double>(row.size());
    for (double& p : row) p = p * p / expected_sum;
    return;
  }
  std::ranges::fill(row, 0.);
  for (const double p : {0.5, 0.375, 0.125}) any_of(row, random) += p;
}

void fill_softmax_output(std::span<double> row, std::int64_t columns, bool logarithm, Random& random) {
  fill_normal(row, random);
  const double lse = std::log(static_cast<double>(columns)) + deviation * deviation / 2;
  for (double& y : row) y = logarithm ? y - lse : std::exp(y - lse);
}

void fill_extreme_gradient(std::span<double> dy, std::span<double> y, std::int64_t index, bool logarithm,
                           double largest, Random& random) {
  fill_normal(dy, random);
  fill_softmax_output(y, std::ssize(y), logarithm, random);
  const auto at = static_cast<std::size_t>(random.below(std::ssize(dy)));
  const std::size_t end = dy.size() - 1;
  // One element dominates the sum: a kernel that skips it is wrong in the whole row.
  const auto only = [&](std::size_t i) {
    std::ranges::fill(dy, 0.);
    dy[i] = 1000;
  };
  switch (index % 8) {
    case 0: only(0); break;
    case 1: only(end); break;
    case 2: only(at); break;
    case 3:
      for (double& x : dy) x *= largest / 100;
      break;
    case 4:
      std::ranges::fill(y, logarithm ? -infinity : 0.);
      y[at] = logarithm ? 0. : 1.;
      break;
    case 5: dy[at] = not_a_number; break;
    case 6: dy[at] = infinity; break;
    case 7: y[at] = not_a_number; break;
  }
}

void fill_weights(std::span<double> weights, Random& random) {
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = i % 8 == class_without_weight ? 0. : 0.25 * static_cast<double>(1 + random.below(8));
}

void fill_scales(std::span<double> scales, bool bad, Random& random) {
  constexpr std::array none{-1., 0., not_a_number, infinity};
  for (std::size_t i = 0; i < scales.size(); ++i)
    scales[i] = bad && i % 16 == 15 ? none.at(i / 16 % none.size())
                                    : std::exp2(-static_cast<double>(random.below(3)));
}

void fill_upstream(std::span<double> upstream, Random& random) {
  for (double& x : upstream) {
    x = 0.5 * static_cast<double>(random.below(7) - 3);
    if (x == 0) x = 2;
  }
}

std::int64_t target_for(std::int64_t row, std::int64_t columns, bool bad, Random& random) {
  if (bad && row % 32 == 9) return columns;
  if (bad && row % 32 == 11) return -1;
  // Rows come in kinds of eight; no kind is always ignored.
  if (row % (bad ? 9 : 8) == 4) return trial_ignore_index;
  if (row % 8 == 1) return 0;
  if (row % 8 == 2) return columns - 1;
  return random.below(columns);
}

}  // namespace ce::generator
