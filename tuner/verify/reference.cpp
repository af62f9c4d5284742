#include "tuner/verify/reference.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tuner/verify/special_values.hpp"

namespace ce::generator {
namespace {

double largest_of(std::span<const double> row) {
  double max = -infinity;
  for (const double x : row) max = std::max(max, x);
  return max;
}

/// The maximum in a form that can be subtracted: -infinity would give NaN.
double finite_or_zero(double max) { return max == -infinity ? 0. : max; }

/// terms[i] = exp(x[i] - shift).
void exponentials(std::span<const double> x, double shift, std::span<double> terms) {
  for (std::size_t i = 0; i < x.size(); ++i) terms[i] = std::exp(x[i] - shift);
}

/// weight x value, but 0 if the weight is 0 and the value infinite: an element that does not count adds nothing.
double weighed(double weight, double value) { return weight == 0 && std::isinf(value) ? 0. : weight * value; }

double sum_of(std::span<const double> row) { return std::accumulate(row.begin(), row.end(), 0.); }

/// Scalings below e to this power count as 0: f32 products with smaller numbers would lose their precision.
constexpr double least_scaling = -32;

/// One call of cross_entropy(), row by row.
class CrossEntropy {
 public:
  explicit CrossEntropy(const CrossEntropyInputs& inputs)
      : in_(inputs),
        width_(static_cast<std::size_t>(inputs.columns)),
        rows_(inputs.logits.size() / width_),
        saved_(!inputs.lse.empty()) {
    weights_ = in_.weights.empty() ? static_cast<double>(width_) : sum_of(in_.weights);
    if (in_.gradient) result_.gradient.resize(in_.logits.size());
    if (in_.gradient) result_.gradient_terms.resize(in_.logits.size());
    z_.resize(width_);
    q_.resize(width_);
    find_divisors();
  }

  CrossEntropyReference run() {
    double loss = 0, z_loss = 0;
    for (std::size_t row = 0; row < rows_; ++row) {
      loss_ = z_loss_ = logprob_ = entropy_ = 0;
      add_row(row);
      result_[&CrossEntropyFlags::logprob_out].push_back(logprob_);
      result_[&CrossEntropyFlags::entropy_out].push_back(entropy_);
      result_.losses.push_back(loss_ + z_loss_);
      result_.z_losses.push_back(z_loss_);
      loss += loss_;
      z_loss += z_loss_;
    }
    result_.z_loss = z_loss / z_divisor_;
    result_.loss = loss / divisor_ + result_.z_loss;
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool is_class(std::int64_t target) const { return target >= 0 && target < in_.columns; }
  [[nodiscard]] double weight(std::size_t column) const {
    return in_.weights.empty() ? 1. : in_.weights[column];
  }
  [[nodiscard]] double smoothed(std::size_t row, std::size_t column) const {
    return (1 - smoothing_) * in_.probabilities[row * width_ + column] +
           smoothing_ / static_cast<double>(width_);
  }
  [[nodiscard]] double transformed(double x) const {
    return cap_ > 0 ? cap_ * std::tanh(scale_ * x / cap_) : scale_ * x;
  }
  [[nodiscard]] double upstream(std::size_t row) const {
    if (in_.upstream.empty()) return 1.;
    return in_.upstream.size() == 1 ? in_.upstream[0] : in_.upstream[row];
  }

  /// lse - z: exact even if the logits are so large that the logsumexp loses the number of equal ones.
  [[nodiscard]] double surprisal(std::size_t column) const { return log_sum_ - (z_[column] - shift_); }

  /// Divisors of the mean.
  void find_divisors() {
    if (in_.reduction != Reduction::mean) return;
    double counted = in_.targets.empty() ? static_cast<double>(rows_) : 0., weighed = counted;
    for (const std::int64_t target : in_.targets) {
      if (target == in_.ignore_index) continue;
      counted += 1;
      if (is_class(target)) weighed += weight(static_cast<std::size_t>(target));
    }
    z_divisor_ = in_.divisor != 0 ? in_.divisor : counted;
    divisor_ = in_.divisor != 0 ? in_.divisor : in_.weights.empty() ? counted : weighed;
  }

  void add_row(std::size_t row) {
    const std::span<const double> x = in_.logits.subspan(row * width_, width_);
    scale_ = logit_scale_ * (in_.row_scales.empty() ? 1. : in_.row_scales[row]);
    if (!is_scale(scale_)) scale_ = not_a_number;
    std::transform(x.begin(), x.end(), z_.begin(), [this](double logit) { return transformed(logit); });
    shift_ = saved_ ? in_.lse[row] : finite_or_zero(largest_of(z_));
    if (!in_.lse_low.empty()) shift_ += in_.lse_low[row];
    exponentials(z_, shift_, q_);
    sum_ = saved_ ? 1. : sum_of(q_);
    log_sum_ = std::log(sum_);
    lse_ = shift_ + log_sum_;
    factor_ = in_.row_weights.empty() ? 1. : in_.row_weights[row];
    const auto nan = std::find_if(x.begin(), x.end(), [](double logit) { return std::isnan(logit); });
    const auto first_largest = nan != x.end() ? nan : std::max_element(x.begin(), x.end());
    const auto argmax = first_largest - x.begin();
    double& hit = result_[&CrossEntropyFlags::hit_out].emplace_back(0);
    result_[&CrossEntropyFlags::lse_out].push_back(lse_);
    result_[&CrossEntropyFlags::lse_low_out].push_back(lse_ - static_cast<double>(static_cast<float>(lse_)));
    result_[&CrossEntropyFlags::argmax_out].push_back(static_cast<double>(argmax));
    if (in_.targets.empty()) {
      find_entropy(row);
      z_loss_ = z_scale_ * lse_ * lse_;
      add_probabilities(row);
      scale_loss();
      return;
    }
    const std::int64_t target = in_.targets[row];
    if (target == in_.ignore_index) return;
    if (is_class(target)) {
      z_loss_ = z_scale_ * lse_ * lse_;
      hit = target == argmax ? 1 : 0;
      find_entropy(row);
      add_target(row, static_cast<std::size_t>(target));
      scale_loss();
      return;
    }
    if (result_.bad_targets++ == 0) result_.first_bad_row = static_cast<std::int64_t>(row);
    loss_ = z_loss_ = logprob_ = entropy_ = not_a_number;
    if (in_.gradient)
      std::ranges::fill(std::span(result_.gradient).subspan(row * width_, width_), not_a_number);
  }

  void scale_loss() {
    loss_ = weighed(factor_, loss_);
    z_loss_ = weighed(factor_, z_loss_);
  }

  void find_entropy(std::size_t row) {
    if (saved_ && !in_.entropy.empty()) {
      entropy_ = in_.entropy[row];
      return;
    }
    entropy_ = sum_ == 0 ? not_a_number : log_sum_;  // a row of only -infinity has no entropy
    for (std::size_t i = 0; i < width_; ++i)
      if (q_[i] != 0) entropy_ -= q_[i] / sum_ * (z_[i] - shift_);
  }

  void add_target(std::size_t row, std::size_t target) {
    // The sum of the exponentials of the target and of all others.
    const double own = q_[target],
                 rest = sum_of(std::span(q_).first(target)) + sum_of(std::span(q_).subspan(target + 1));
    const double distance = saved_ && !in_.logprob.empty() ? -in_.logprob[row] : surprisal(target);
    const double nll = own > rest && !saved_ ? std::log1p(rest / own) : distance;
    logprob_ = -nll;
    if (token_scaling_ != 0)
      factor_ *= token_scaling_ * logprob_ < least_scaling ? 0. : std::exp(token_scaling_ * logprob_);
    loss_ = weighed((1 - smoothing_) * weight(target), nll);
    const double share = smoothing_ / static_cast<double>(width_);
    if (smoothing_ > 0)
      for (std::size_t i = 0; i < width_; ++i) loss_ += weighed(share * weight(i), surprisal(i));
    if (!in_.gradient) return;

    const double hard = (1 - smoothing_) * weight(target) / divisor_;
    const double smooth = share * weights_ / divisor_;
    const double z_part = 2 * z_scale_ * lse_ / z_divisor_;
    const double others = saved_ ? -std::expm1(-distance) : rest / sum_;
    const double q_target = saved_ && !in_.logprob.empty() ? std::exp(logprob_) : own / sum_;
    put_gradient(row, hard + smooth + z_part, hard + smooth + std::abs(z_part),
                 [&](std::size_t i) { return share * weight(i) / divisor_; });

    const double pull = hard * others + share * weight(target) / divisor_;
    // With a saved logsumexp, which is rounded to f32, the probability of the other classes is a difference.
    const double lost = saved_ ? pull + hard * q_target : pull;
    put(row, target, (smooth + z_part) * q_target - pull, (smooth + std::abs(z_part)) * q_target + lost,
        {.probability = q_target, .logarithm = logprob_});
  }

  void add_probabilities(std::size_t row) {
    double total = 0;
    for (std::size_t i = 0; i < width_; ++i) {
      const double term = weight(i) * smoothed(row, i);
      total += term;
      loss_ += weighed(term, surprisal(i));
    }
    if (!in_.gradient) return;
    const double z_part = 2 * z_scale_ * lse_ / z_divisor_;
    put_gradient(row, total / divisor_ + z_part, total / divisor_ + std::abs(z_part),
                 [&](std::size_t i) { return weight(i) * smoothed(row, i) / divisor_; });
  }

  /// d[i] = amplitude q[i] - term(i) for all columns. \param size  the sum of the absolute terms of the amplitude
  template <class Term>
  void put_gradient(std::size_t row, double amplitude, double size, const Term& term) {
    for (std::size_t i = 0; i < width_; ++i) {
      const double q = q_[i] / sum_, own = term(i);
      put(row, i, amplitude * q - own, size * q + own, {.probability = q, .logarithm = -surprisal(i)});
    }
  }

  /// Converts the gradient of a transformed logit to that of the logit.
  struct Class {
    double probability, logarithm;
  };
  void put(std::size_t row, std::size_t column, double d, double terms, const Class& of) {
    const double up = upstream(row) * factor_, t = cap_ > 0 ? z_[column] / cap_ : 0.;
    const double slope = scale_ * (1 - t * t), q = of.probability;
    double sum = up * d, all_terms = std::abs(up) * terms;
    if (!in_.lse_upstream.empty()) {
      sum += in_.lse_upstream[row] * q;
      all_terms += std::abs(in_.lse_upstream[row]) * q;
    }
    if (!in_.entropy_upstream.empty() && q != 0) {
      sum -= in_.entropy_upstream[row] * q * (of.logarithm + entropy_);
      // For a confident row both are next to 0, and the entropy is a difference of sums of about 1. Rounding under a
      // cap is an absolute error of the logarithm.
      const double of_sums = cap_ > 0 ? 1 : 0.1;
      all_terms +=
          std::abs(in_.entropy_upstream[row]) * q * (std::abs(of.logarithm) + std::abs(entropy_) + of_sums);
    }
    result_.gradient[row * width_ + column] = slope * sum;
    result_.gradient_terms[row * width_ + column] = static_cast<float>(scale_ * all_terms);
  }

  const CrossEntropyInputs& in_;
  const std::size_t width_, rows_;
  const double smoothing_ = in_.amounts[&CrossEntropyFlags::smoothing];
  const double z_scale_ = in_.amounts[&CrossEntropyFlags::z_loss];
  const double cap_ = in_.amounts[&CrossEntropyFlags::softcap];  ///< 0: none
  const double logit_scale_ = in_.amounts[&CrossEntropyFlags::scale];
  const double token_scaling_ = in_.amounts[&CrossEntropyFlags::token_scaling];
  const bool saved_;                    ///< the logsumexp is an input
  double weights_ = 0;                  ///< the sum of all weights
  double divisor_ = 1, z_divisor_ = 1;  ///< divisors of losses and of z-losses
  // Members for the current row: transformed logits, exp(z - shift), and their sum; 1 if the logsumexp was saved.
  std::vector<double> z_, q_;
  double scale_ = 1, shift_ = 0, sum_ = 1, log_sum_ = 0, lse_ = 0, loss_ = 0, z_loss_ = 0;
  double logprob_ = 0, entropy_ = 0, factor_ = 1;  ///< factor on loss and gradient
  CrossEntropyReference result_;
};

}  // namespace

std::vector<double>& CrossEntropyReference::operator[](bool CrossEntropyFlags::*output) {
  return of_rows.at(index_in<cross_entropy_outputs>(output));
}
const std::vector<double>& CrossEntropyReference::operator[](bool CrossEntropyFlags::*output) const {
  return of_rows.at(index_in<cross_entropy_outputs>(output));
}

void softmax_row(std::span<const double> x, std::span<double> y) {
  exponentials(x, finite_or_zero(largest_of(x)), y);
  const double sum = sum_of(y);
  for (double& value : y) value /= sum;
}

void log_softmax_row(std::span<const double> x, std::span<double> y) {
  const double max = finite_or_zero(largest_of(x));
  exponentials(x, max, y);
  const double log_sum = std::log(sum_of(y));
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] - max - log_sum;
}

void softmax_backward_row(std::span<const double> dy, std::span<const double> y, std::span<double> dx) {
  double dot = 0;
  for (std::size_t i = 0; i < y.size(); ++i) dot += dy[i] * y[i];
  for (std::size_t i = 0; i < y.size(); ++i) dx[i] = y[i] * (dy[i] - dot);
}

void log_softmax_backward_row(std::span<const double> dy, std::span<const double> y, std::span<double> dx) {
  const double sum = sum_of(dy);
  for (std::size_t i = 0; i < y.size(); ++i) dx[i] = dy[i] - std::exp(y[i]) * sum;
}

void set_amounts(CrossEntropyInputs& inputs, const Arguments& arguments) noexcept {
  for (const CrossEntropyOption& option : cross_entropy_options)
    inputs.amounts[option.field] = static_cast<double>(arguments.amounts[index_of(option)]);
}

CrossEntropyReference cross_entropy(const CrossEntropyInputs& inputs) { return CrossEntropy(inputs).run(); }

}  // namespace ce::generator
