#include "tests/ce/formulas.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace ce::test {
namespace {

/// A row's logits as the loss sees them, and how they follow from the given ones.
struct Row {
  std::vector<double> z, slope;
  double lse = 0;
};

Row transformed(const CrossEntropy& operation, const double* x, std::int64_t columns) {
  const double cap = static_cast<double>(operation.softcap),
               scale = static_cast<double>(operation.logit_scale);
  Row row;
  for (std::int64_t i = 0; i < columns; ++i) {
    const double t = cap != 0 ? std::tanh(scale * x[i] / cap) : 0;
    row.z.push_back(cap != 0 ? cap * t : scale * x[i]);
    row.slope.push_back(scale * (1 - t * t));
  }
  const double max = *std::ranges::max_element(row.z);
  double sum = 0;
  for (const double z : row.z) sum += std::exp(z - max);
  row.lse = max + std::log(sum);
  return row;
}

/// What each class counts in a row's loss, sum_i share[i] (lse - z[i]), all options but the z-loss in it.
std::vector<double> shares(const LossInput& input, std::int64_t row) {
  const double smoothing = static_cast<double>(input.operation.label_smoothing);
  std::vector<double> share;
  for (std::int64_t i = 0; i < input.columns; ++i) {
    const double wanted = input.target.empty()
                              ? input.probabilities.at(static_cast<std::size_t>(row * input.columns + i))
                          : input.target.at(static_cast<std::size_t>(row)) == i ? 1.
                                                                                : 0.;
    const double weight = input.weight.empty() ? 1. : input.weight.at(static_cast<std::size_t>(i));
    share.push_back(weight * ((1 - smoothing) * wanted + smoothing / static_cast<double>(input.columns)));
  }
  return share;
}

}  // namespace

LossOutput cross_entropy(const LossInput& input) {
  const std::int64_t ignore_index = input.operation.ignore_index;
  const Reduction reduction = input.operation.reduction;
  const auto target = [&](std::int64_t row) {
    return input.target.empty() ? 0 : input.target.at(static_cast<std::size_t>(row));
  };
  const auto ignored = [&](std::int64_t row) { return !input.target.empty() && target(row) == ignore_index; };

  double divisor = 1, z_divisor = 1;
  if (reduction == Reduction::mean) {
    divisor = z_divisor = 0;
    for (std::int64_t row = 0; row < input.rows; ++row) {
      if (ignored(row)) continue;
      z_divisor += 1;
      divisor += input.target.empty() || input.weight.empty()
                     ? 1
                     : input.weight.at(static_cast<std::size_t>(target(row)));
    }
  }

  LossOutput output;
  std::vector<double> losses, z_losses;
  for (std::int64_t row = 0; row < input.rows; ++row) {
    const double* x = input.logits.data() + row * input.columns;
    const Row own = transformed(input.operation, x, input.columns);
    output.lse.push_back(own.lse);
    const std::int64_t largest = std::max_element(x, x + input.columns) - x;
    output.argmax.push_back(largest);
    output.hit.push_back(largest == target(row) && !ignored(row) ? 1 : 0);
    // 0 where the row is ignored, NaN where its target is no class.
    const bool wrong = target(row) < 0 || target(row) >= input.columns;
    const double counts = ignored(row) ? 0. : wrong ? not_a_number : 1.;
    const double z_factor = counts * static_cast<double>(input.operation.z_loss);
    const std::vector<double> share = shares(input, row);
    const double sum = std::accumulate(share.begin(), share.end(), 0.);
    double loss = 0;
    for (std::size_t i = 0; i < share.size(); ++i) loss += share[i] * (own.lse - own.z[i]);
    losses.push_back(counts * loss);
    z_losses.push_back(z_factor * own.lse * own.lse);
    const double upstream = input.upstream.empty()       ? 1.
                            : input.upstream.size() == 1 ? input.upstream.front()
                                                         : input.upstream.at(static_cast<std::size_t>(row));
    for (std::size_t i = 0; i < share.size(); ++i) {
      const double q = std::exp(own.z[i] - own.lse);
      const double by_z = counts * (q * sum - share[i]) / divisor + 2 * z_factor * own.lse * q / z_divisor;
      output.grad.push_back(ignored(row) ? 0. : upstream * own.slope[i] * by_z);
    }
  }

  if (reduction == Reduction::none) {
    output.z_loss = z_losses;
    for (std::size_t i = 0; i < losses.size(); ++i) output.loss.push_back(losses[i] + z_losses[i]);
  } else {
    output.z_loss = {std::accumulate(z_losses.begin(), z_losses.end(), 0.) / z_divisor};
    output.loss = {std::accumulate(losses.begin(), losses.end(), 0.) / divisor + output.z_loss.front()};
  }
  return output;
}

}  // namespace ce::test
