#include "generator/reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ce::generator {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

struct Normaliser {
  double max, sum;
};

Normaliser normaliser(std::span<const double> row) {
  double max = -std::numeric_limits<double>::infinity();
  for (const double x : row) max = std::max(max, x);
  double sum = 0;
  for (const double x : row) sum += std::exp(x - max);
  return {max, sum};
}

}  // namespace

std::vector<double> softmax_row(std::span<const double> logits) {
  const auto [max, sum] = normaliser(logits);
  std::vector<double> result(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) result[i] = std::exp(logits[i] - max) / sum;
  return result;
}

CrossEntropyReference cross_entropy(std::span<const double> logits, std::span<const std::int64_t> targets,
                                    std::int64_t columns, std::int64_t ignore_index, Reduction reduction) {
  const auto width = static_cast<std::size_t>(columns);
  CrossEntropyReference result;
  result.losses.resize(targets.size());
  result.gradient.resize(logits.size());

  std::int64_t counted = 0;
  for (const std::int64_t target : targets) counted += target != ignore_index;
  const double upstream = reduction == Reduction::mean ? 1. / static_cast<double>(counted) : 1.;

  for (std::size_t row = 0; row < targets.size(); ++row) {
    const std::int64_t target = targets[row];
    const std::span<double> gradient = std::span(result.gradient).subspan(row * width, width);
    if (target == ignore_index) continue;
    if (target < 0 || target >= columns) {
      if (result.bad_targets++ == 0) result.first_bad_row = static_cast<std::int64_t>(row);
      result.losses[row] = nan;
      std::fill(gradient.begin(), gradient.end(), nan);
      continue;
    }
    const std::span<const double> x = logits.subspan(row * width, width);
    const auto [max, sum] = normaliser(x);
    result.losses[row] = std::log(sum) - (x[static_cast<std::size_t>(target)] - max);
    for (std::size_t i = 0; i < width; ++i) gradient[i] = std::exp(x[i] - max) / sum * upstream;
    gradient[static_cast<std::size_t>(target)] -= upstream;
  }
  for (const double loss : result.losses) result.loss += loss;
  if (reduction == Reduction::mean) result.loss /= static_cast<double>(counted);
  return result;
}

}  // namespace ce::generator
