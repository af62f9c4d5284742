#include "tuner/verify/cross_entropy_trial.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/operations/cross_entropy_rules.hpp"
#include "tuner/verify/elements.hpp"
#include "tuner/verify/reference.hpp"
#include "tuner/verify/shard_statistics.hpp"
#include "tuner/verify/special_values.hpp"
#include "tuner/verify/trial_builder.hpp"

namespace ce::generator {
namespace {

float CrossEntropyOption::Trials::*amounts_of(Rows rows) {
  using Trials = CrossEntropyOption::Trials;
  return rows == Rows::ordinary  ? &Trials::ordinary
         : rows == Rows::extreme ? &Trials::extreme
                                 : &Trials::confident;
}

/// Inputs of one trial, and the reference's results.
class CrossEntropyTrial {
 public:
  CrossEntropyTrial(const Problem& problem, Rows rows, Random& random)
      : builder_(problem, true, amounts_of(rows)), problem_(problem), rows_(rows), random_(random) {
    // Error of a transformed logit in f32, from the hyperbolic tangent.
    logit_error_ = 1e-6 * static_cast<double>(amount_of(&CrossEntropyFlags::softcap, builder_.arguments()));
    choose_shard();
    inputs_ = {.columns = classes_,
               .ignore_index = trial_ignore_index,
               .reduction = problem.reduction,
               .gradient = problem.gradient};
    set_amounts(inputs_, builder_.arguments());
  }

  [[nodiscard]] TargetStatus status_of(const CrossEntropyReference& reference) const {
    if (reference.bad_targets == 0) return {0, std::numeric_limits<long long>::max()};
    const long long row = reference.first_bad_row;
    const long long target =
        std::clamp<long long>(targets_.at(static_cast<std::size_t>(row)), least_bad_target, most_bad_target);
    return {reference.bad_targets, (row << bad_target_bits) + target - least_bad_target};
  }

  Trial build() {
    if (!problem_.probabilities)
      for (std::int64_t row = 0; row < problem_.rows; ++row)
        targets_.push_back(target_for(row, classes_, rows_ == Rows::extreme, random_));
    // Threads beyond the last row must not count it again.
    if (rows_ == Rows::extreme && !targets_.empty()) targets_.back() = classes_;
    inputs_.targets = targets_;
    if (problem_.has.row_scales) {
      scales_.resize(static_cast<std::size_t>(problem_.rows));
      fill_scales(scales_, rows_ == Rows::extreme, random_);
      inputs_.row_scales = scales_;
    }
    add_matrices();
    add_vectors();
    add_statistics();
    CrossEntropyReference reference = cross_entropy(inputs_);
    if (has_losses(problem_.operation)) add_results(reference);
    builder_.add_scratch();
    if (!has_losses(problem_.operation) && is_sharded(problem_.operation))
      reference.bad_targets = 0;  // the merge kernel counts them
    builder_.expect_status(status_of(reference));
    if (problem_.gradient) expect_gradient(std::move(reference));
    return builder_.take();
  }

 private:
  /// Chooses the range of this shard's columns among the classes. A wide shard's neighbours have few classes, since f64
  /// is slow.
  void choose_shard() {
    classes_ = problem_.columns;
    if (!is_sharded(problem_.operation)) return;
    if (problem_.operation == Operation::cross_entropy_merge) {
      classes_ = shard_width * problem_.columns + 3;
    } else {
      constexpr std::int64_t most_before = 4096, boundary = 8, behind = 9;
      first_class_ = std::min(problem_.columns, most_before) / boundary * boundary;
      classes_ = first_class_ + problem_.columns + behind;
    }
    builder_.set_shard(first_class_, classes_,
                       problem_.operation == Operation::cross_entropy_merge ? problem_.columns
                       : exchanges(problem_.operation)                      ? 3
                                                                            : 1);
  }

  /// The problem's columns of each row of classes.
  [[nodiscard]] std::vector<double> shard_of(const std::vector<double>& values) const {
    std::vector<double> own;
    for (auto row = values.begin(); row != values.end(); row += classes_)
      own.insert(own.end(), row + first_class_, row + first_class_ + problem_.columns);
    return own;
  }

  /// Rounds to the dtype, lays out the problem's columns, and keeps the values of all classes.
  [[nodiscard]] TrialMatrix matrix(std::vector<double> values, const Placement& placement) const {
    if (!is_sharded(problem_.operation)) return builder_.matrix(std::move(values), placement);
    std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_of(problem_.dtype)));
    write_elements(problem_.dtype, bytes.data(), 0, 1, values);
    if (problem_.operation == Operation::cross_entropy_merge) return {std::move(values), {}};
    TrialMatrix own = builder_.matrix(shard_of(values), placement);
    own.values = std::move(values);
    return own;
  }

  /// Adds the statistics: read for all shards of each row, or written for this one.
  void add_statistics() {
    if (!is_sharded(problem_.operation)) return;
    const auto of_rows = [&](std::int64_t first, std::int64_t count) {
      std::vector<ShardStatistics> rows;
      for (std::int64_t row = 0; row < problem_.rows; ++row) {
        const std::int64_t target = targets_.empty() ? 0 : targets_[static_cast<std::size_t>(row)];
        const bool counts =
            (target >= 0 && target < classes_) || problem_.has.lse_out || problem_.has.argmax_out;
        rows.push_back(counts ? shard_statistics(inputs_, row, first, count)
                              : ShardStatistics{.target = -infinity,
                                                .max = -infinity,
                                                .lse = -infinity,
                                                .log_sum = -infinity,
                                                .entropy = not_a_number,
                                                .largest = -infinity,
                                                .argmax = std::numeric_limits<std::int32_t>::max()});
      }
      return rows;
    };
    if (problem_.operation == Operation::cross_entropy_shard)
      return expect_statistics(of_rows(first_class_, problem_.columns));
    std::vector<std::uint32_t> words;
    const auto add = [&](std::int64_t first, std::int64_t count) {
      std::int64_t index = 0;
      for (const ShardStatistics& row : of_rows(first, count)) {
        const std::vector<std::uint32_t> own = words_of(row, problem_, unit_of_row(index++));
        words.insert(words.end(), own.begin(), own.end());
      }
    };
    if (exchanges(problem_.operation)) {  // a rank before this one, and one behind it
      std::vector<std::vector<std::uint32_t>> of_ranks;
      add(0, first_class_);
      of_ranks.push_back(std::exchange(words, {}));
      of_ranks.emplace_back();
      const std::int64_t end = first_class_ + problem_.columns;
      add(end, classes_ - end);
      of_ranks.push_back(std::move(words));
      const ExchangeLag lag{.least = 500, .of_cluster = 10};
      return builder_.add_exchange(of_ranks, 1, rows_ == Rows::ordinary ? lag : ExchangeLag{});
    }
    if (problem_.operation == Operation::cross_entropy_merge) {
      for (std::int64_t rank = 0; rank < problem_.columns; ++rank)
        add(rank * shard_width, rank + 1 < problem_.columns ? shard_width : classes_ - rank * shard_width);
      builder_.add_statistics(words);
      expect_statistics(of_rows(0, classes_));
    } else {
      add(0, classes_);
      builder_.add_statistics(words);
    }
  }

  void expect_statistics(const std::vector<ShardStatistics>& rows) {
    builder_.add_statistics_result();
    std::vector<double> quantities;
    std::vector<float> slack, units;
    for (const ShardStatistics& row : rows) {
      if (problem_.has.row_scales) units.push_back(unit_of_row(static_cast<std::int64_t>(units.size())));
      const std::vector<double> own = quantities_of(row, problem_);
      quantities.insert(quantities.end(), own.begin(), own.end());
      // Sums of products have errors in proportion to their terms, which the largest logit bounds.
      const double logit =
          std::isfinite(row.largest)
              ? std::abs(row.largest) * std::max(1., inputs_.amounts[&CrossEntropyFlags::scale])
              : 0;
      const double size = 1 + row.weight * (1 + logit + (std::isfinite(row.lse) ? std::abs(row.lse) : 0));
      for (const double quantity : own)
        slack.push_back(static_cast<float>(
            std::isfinite(quantity) ? 4e-6 * std::max(size, std::abs(quantity)) + 8 * logit_error_ : 0));
    }
    builder_.expect_statistics(std::move(quantities), std::move(slack), statistics_words(problem_),
                               std::move(units));
  }
  [[nodiscard]] float unit_of_row(std::int64_t row) const {
    return unit_of(problem_, builder_.arguments(),
                   scales_.empty() ? 1. : scales_[static_cast<std::size_t>(row)]);
  }

  static constexpr std::int64_t shard_width = 7;  ///< columns of each rank but the last

  void fill_logits(std::span<double> row, std::int64_t index) {
    switch (rows_) {
      case Rows::ordinary:
        fill_normal(row, random_);
        for (double& x : row) x += offset_of(index);
        return;
      case Rows::extreme:
        return fill_extreme(row, index,
                            {.largest = large_logit(problem_.dtype),
                             .lowest = -largest(problem_.dtype),
                             .saturating = problem_.has.softcap},
                            random_);
      case Rows::confident:
        fill_confident(row, nines(index),
                       std::max<std::int64_t>(targets_[static_cast<std::size_t>(index)], 0), random_);
        for (double& x : row)
          x = (inputs_.amounts[&CrossEntropyFlags::softcap] > 0
                   ? inputs_.amounts[&CrossEntropyFlags::softcap] *
                         std::atanh(x / inputs_.amounts[&CrossEntropyFlags::softcap])
                   : x) /
              (inputs_.amounts[&CrossEntropyFlags::scale] *
               (scales_.empty() ? 1. : scales_[static_cast<std::size_t>(index)]));
    }
  }

  /// Large enough that the rounding error of a row's logsumexp is visible, if it is an output.
  [[nodiscard]] double offset_of(std::int64_t index) const {
    const bool keeps = problem_.has.lse_low_out || problem_.has.saved_lse_low;
    return keeps && problem_.dtype == DType::f32 && !problem_.has.softcap && index % 3 == 1 ? 4096 : 0;
  }

  /// 6 to 12; also targets of middling probability, unless small losses are added to those of other rows.
  [[nodiscard]] double nines(std::int64_t index) const {
    if (index % 9 >= 7 && !sums_losses(problem_)) return index % 9 == 7 ? 0.5 : 0.;
    return static_cast<double>(6 + index % 7);
  }

  void add_matrices() {
    const auto width = static_cast<std::size_t>(classes_);
    std::vector<double> values(static_cast<std::size_t>(problem_.rows) * width);
    const auto each_row = [&](const auto& fill) {
      for (std::int64_t row = 0; row < problem_.rows; ++row)
        fill(std::span(values).subspan(static_cast<std::size_t>(row) * width, width), row);
    };
    each_row([this](std::span<double> row, std::int64_t index) { fill_logits(row, index); });
    logits_ = matrix(values, builder_.at().input);
    inputs_.logits = logits_.values;
    const bool merges = problem_.operation == Operation::cross_entropy_merge;
    if (!merges) builder_.add_input(std::move(logits_.bytes));
    if (problem_.probabilities) {
      each_row(
          [this](std::span<double> row, std::int64_t index) { fill_probabilities(row, index, random_); });
      probabilities_ = matrix(std::move(values), builder_.at().second);
      inputs_.probabilities = probabilities_.values;
      if (!merges) builder_.add_second(std::move(probabilities_.bytes));
    }
    if (!merges) builder_.add_output();
  }

  void add_vectors() {
    if (!problem_.probabilities) {
      std::vector<double> targets(targets_.begin(), targets_.end());
      builder_.add_vector("target", offsetof(Arguments, target), problem_.target_dtype, targets);
    }
    if (problem_.weights) {
      weights_.resize(static_cast<std::size_t>(classes_));
      fill_weights(weights_, random_);
      builder_.add_vector("weight", offsetof(Arguments, weight), problem_.weight_dtype, weights_);
      inputs_.weights = weights_;
    }
    if (problem_.upstream != Upstream::one) {
      upstream_.resize(problem_.upstream == Upstream::rows ? static_cast<std::size_t>(problem_.rows) : 1);
      fill_upstream(upstream_, random_);
      builder_.add_vector("upstream", offsetof(Arguments, upstream), problem_.loss_dtype, upstream_);
      inputs_.upstream = upstream_;
    }
    for (const CrossEntropyInput& input : cross_entropy_inputs)
      if (problem_.has.*input.field && !input.of_backward) add_input(input);
    if (problem_.operation == Operation::cross_entropy_backward) add_saved();
  }

  void add_input(const CrossEntropyInput& input) {
    std::vector<double>& values = row_inputs_[input.tensor];
    values.resize(static_cast<std::size_t>(input.elements(problem_)));
    if (input.field == &CrossEntropyFlags::row_scales) {
      values = scales_;
    } else if (input.field == &CrossEntropyFlags::given_lse) {
      CrossEntropyInputs inputs = inputs_;
      values = cross_entropy(inputs)[&CrossEntropyFlags::lse_out];
      builder_.add_vector(std::string(input.tensor), argument_of(input), DType::f32, values);
      inputs_.lse = values;
      return;
    } else if (input.field == &CrossEntropyFlags::row_weights) {
      fill_weights(values, random_);
      inputs_.row_weights = values;
    } else if (input.field == &CrossEntropyFlags::divisor) {
      values.front() = inputs_.divisor = 37.5;
    } else {
      fill_upstream(values, random_);
      (input.field == &CrossEntropyFlags::lse_upstream ? inputs_.lse_upstream : inputs_.entropy_upstream) =
          values;
    }
    builder_.add_vector(std::string(input.tensor), argument_of(input), DType::f32, values);
  }

  /// Results of the forward that the backward reads.
  void add_saved() {
    CrossEntropyInputs inputs = inputs_;
    inputs.gradient = false;
    const CrossEntropyReference forward = cross_entropy(inputs);
    const auto add = [&](const char* name, std::size_t argument, const std::vector<double>& from,
                         std::vector<double>& values) {
      values = from;
      builder_.add_vector(name, argument, DType::f32, values);
      return std::span<const double>(values);
    };
    inputs_.lse =
        add("lse", argument_of(&CrossEntropyFlags::lse_out), forward[&CrossEntropyFlags::lse_out], lse_);
    if (problem_.has.saved_logprob)
      inputs_.logprob = add("logprob", argument_of(&CrossEntropyFlags::logprob_out),
                            forward[&CrossEntropyFlags::logprob_out], logprob_);
    if (problem_.has.saved_lse_low)
      inputs_.lse_low = add("lse_low", argument_of(&CrossEntropyFlags::lse_low_out),
                            forward[&CrossEntropyFlags::lse_low_out], lse_low_);
    if (reads_entropy(problem_))
      inputs_.entropy = add("entropy", argument_of(&CrossEntropyFlags::entropy_out),
                            forward[&CrossEntropyFlags::entropy_out], entropy_);
  }

  void add_results(const CrossEntropyReference& reference) {
    // Error of a logsumexp; the z-loss squares it.
    const auto& of_lse =
        cross_entropy_outputs.at(index_in<cross_entropy_outputs>(&CrossEntropyFlags::lse_out)).tolerance;
    const double lse_error = of_lse.absolute + of_lse.absolute_of_logits * logit_error_;
    std::vector<float> z_slack, slack, logprob_slack, low_slack;
    for (const double lse : reference[&CrossEntropyFlags::lse_out]) {
      const double size = std::isfinite(lse) ? std::abs(lse) : 0.;
      // A kernel may round the logsumexp to the neighbouring number.
      low_slack.push_back(static_cast<float>(size * 0x1p-23));
      z_slack.push_back(
          problem_.has.z_loss
              ? static_cast<float>(2 * inputs_.amounts[&CrossEntropyFlags::z_loss] * size * lse_error)
              : 0.f);
      // A difference from a given logsumexp is rounded like its terms.
      logprob_slack.push_back(problem_.has.given_lse ? static_cast<float>(2e-7 * size + 2 * logit_error_)
                                                     : 0.f);
      constexpr float largest_weights = 4;
      slack.push_back(z_slack.back() + largest_weights * logprob_slack.back());
    }
    if (!problem_.has.z_loss && !problem_.has.given_lse) slack.clear();
    if (!problem_.has.given_lse) logprob_slack.clear();
    // The loss of a class has only terms of equal sign, so small losses are as exact as large ones. The loss of
    // probabilities is a difference from the logsumexp.
    const double relative = 1e-5 + 4 * logit_error_ + scaling_error();
    const double absolute = problem_.probabilities ? 4 * lse_error : 0.;
    add_loss("loss", offsetof(Arguments, loss), reference.losses, reference.loss, relative, absolute, slack);
    if (problem_.has.z_loss_out)
      add_loss("z_loss_out", argument_of(&CrossEntropyFlags::z_loss_out), reference.z_losses,
               reference.z_loss, 1e-5 + scaling_error(), 0, z_slack);
    for (const CrossEntropyOutput& output : cross_entropy_outputs) {
      if (!(problem_.has.*output.field) || output.kind != CrossEntropyOutput::Kind::of_rows) continue;
      const auto& [by_itself, beside, of_logits, beside_of_logits] = output.tolerance;
      builder_.add_result(std::string(output.tensor), argument_of(output), output.dtype, problem_.rows);
      builder_.expect_result(reference[output.field], by_itself + of_logits * logit_error_,
                             beside + beside_of_logits * logit_error_,
                             output.field == &CrossEntropyFlags::logprob_out   ? logprob_slack
                             : output.field == &CrossEntropyFlags::lse_low_out ? low_slack
                                                                               : std::vector<float>{});
    }
  }

  /// Error of a probability to a power: f32 rounds its logarithm, of 20 or so.
  [[nodiscard]] double scaling_error() const {
    return inputs_.amounts[&CrossEntropyFlags::token_scaling] * 2e-5 +
           (problem_.has.token_scaling ? 20 * logit_error_ : 0.);
  }

  void add_loss(const char* name, std::size_t argument, const std::vector<double>& losses, double reduced,
                double relative, double absolute, const std::vector<float>& slack) {
    if (problem_.reduction == Reduction::none) {
      builder_.add_result(name, argument, problem_.loss_dtype, problem_.rows);
      builder_.expect_result(losses, relative, absolute, slack);
      return;
    }
    double rows = static_cast<double>(problem_.rows),
           of_rows = std::accumulate(slack.begin(), slack.end(), 0.);
    if (problem_.reduction == Reduction::mean) {
      of_rows /= rows;
      rows = 1;
    }
    builder_.add_result(name, argument, problem_.loss_dtype, 1);
    builder_.expect_result({reduced}, relative, absolute * rows + of_rows);
  }

  void expect_gradient(CrossEntropyReference reference) {
    if (is_sharded(problem_.operation)) {
      reference.gradient = shard_of(reference.gradient);
      std::vector<float> terms;
      for (auto row = reference.gradient_terms.begin(); row != reference.gradient_terms.end();
           row += classes_)
        terms.insert(terms.end(), row + first_class_, row + first_class_ + problem_.columns);
      reference.gradient_terms = std::move(terms);
    }
    // Errors of f32 arithmetic: the rounded exponent of exp(x - max), at most 126 in units of log2, and the sum.
    double relative = 2e-5 + 4 * logit_error_ + scaling_error();
    // With 16-bit elements, exponents, which grow with the cap, and slopes are in f16 (logits.cuh, docs/accuracy.md).
    if (problem_.has.softcap && problem_.dtype != DType::f32)
      relative += 0x1p-12 * (1.1 * inputs_.amounts[&CrossEntropyFlags::softcap] + 1);
    const bool single_terms = !problem_.has.smoothing && !problem_.probabilities && !problem_.has.z_loss &&
                              !problem_.has.softcap && !problem_.has.entropy_upstream &&
                              !problem_.has.lse_upstream && problem_.operation == Operation::cross_entropy;
    if (single_terms) return builder_.expect_matrix(std::move(reference.gradient), relative, 0);
    for (float& terms : reference.gradient_terms) terms *= static_cast<float>(relative);
    builder_.expect_matrix(std::move(reference.gradient), 0, 0, std::move(reference.gradient_terms));
  }

  TrialBuilder builder_;
  const Problem problem_;
  std::int64_t first_class_ = 0, classes_ = 0;  ///< of the columns; and the number in all shards
  const Rows rows_;
  Random& random_;
  double logit_error_ = 0;
  CrossEntropyInputs inputs_;
  TrialMatrix logits_, probabilities_;
  std::vector<std::int64_t> targets_;
  std::vector<double> weights_, scales_, upstream_, lse_, lse_low_, logprob_, entropy_;
  std::map<std::string_view, std::vector<double>> row_inputs_;  ///< by tensor name
};

}  // namespace

Trial cross_entropy_trial(const Problem& problem, Rows rows, Random& random) {
  return CrossEntropyTrial(problem, rows, random).build();
}

}  // namespace ce::generator
