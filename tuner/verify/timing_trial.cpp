#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "generator/operations/cross_entropy_rules.hpp"
#include "tuner/verify/elements.hpp"
#include "tuner/verify/trial.hpp"
#include "tuner/verify/trial_builder.hpp"
#include "tuner/verify/trial_values.hpp"

namespace ce::generator {
namespace {

/// A block of values that is repeated; its length is no multiple of a row.
template <class Fill>
std::vector<std::byte> pattern(DType dtype, std::size_t most_bytes, const Fill& fill) {
  const std::size_t bytes = std::min((std::size_t{1} << 20) + 16 * 37, most_bytes);
  std::vector<double> values(bytes / static_cast<std::size_t>(size_of(dtype)));
  fill(std::span(values));
  std::vector<std::byte> block(bytes);
  write_elements(dtype, block.data(), 0, 1, values);
  return block;
}

std::vector<double> filled(std::int64_t size, double value) {
  return std::vector<double>(static_cast<std::size_t>(size), value);
}

/// Delays that make a kernel that is timed alone wait as it would for other ranks: only then are the fastest configs
/// those that are fastest among ranks, because latency must be hidden (docs/ranks.md). A packet is visible over NVLink
/// after some 3 us; and ranks, which begin rows together, end them up to half of a row's time apart.
ExchangeLag lag_of_ranks(const Problem& problem) {
  constexpr double bytes_of_ns = 3000;  // memory traffic of an H100; two thirds of an H200's
  const double row = 2. * static_cast<double>(problem.columns * size_of(problem.dtype)) / bytes_of_ns;
  return {.least = 3000, .of_cluster = static_cast<unsigned>(row / 2)};
}

void add_cross_entropy(TrialBuilder& builder, Random& random) {
  const Problem& problem = builder.problem();
  if (!problem.probabilities) {
    std::vector<double> targets = filled(problem.rows, 0);
    for (double& target : targets) target = static_cast<double>(random.below(problem.columns));
    builder.add_vector("target", offsetof(Arguments, target), problem.target_dtype, targets);
  }
  if (problem.weights) {
    std::vector<double> weights = filled(problem.columns, 0);
    fill_weights(weights, random);
    builder.add_vector("weight", offsetof(Arguments, weight), problem.weight_dtype, weights);
  }
  if (problem.upstream != Upstream::one) {
    std::vector<double> upstream = filled(problem.upstream == Upstream::rows ? problem.rows : 1, 0);
    fill_upstream(upstream, random);
    builder.add_vector("upstream", offsetof(Arguments, upstream), problem.loss_dtype, upstream);
  }
  const double log_columns = std::log(static_cast<double>(problem.columns));
  for (const CrossEntropyInput& input : cross_entropy_inputs)
    if (problem.has.*input.field) {
      std::vector<double> values = filled(input.elements(problem), input.of_backward ? -log_columns : 1);
      builder.add_vector(std::string(input.tensor), argument_of(input), DType::f32, values);
    }
  if (reads_entropy(problem)) {
    std::vector<double> entropy = filled(problem.rows, std::max(0., log_columns - 2));
    builder.add_vector("entropy", argument_of(&CrossEntropyFlags::entropy_out), DType::f32, entropy);
  }
  if (is_sharded(problem.operation)) {
    const bool merges = problem.operation == Operation::cross_entropy_merge;
    const std::int64_t ranks = merges ? problem.columns : 1;
    builder.set_shard(0, merges ? 64 * problem.columns : problem.columns, ranks);
    if (problem.operation == Operation::cross_entropy_shard) {
      builder.add_statistics_result();
      return;
    }
    if (exchanges(problem.operation)) {  // it exchanges with itself, with a delay
      builder.add_exchange(std::vector<std::vector<std::uint32_t>>(1), 0, lag_of_ranks(problem));
    } else {
      const auto words = static_cast<std::size_t>(ranks * problem.rows * statistics_words(problem));
      builder.add_statistics(std::vector<std::uint32_t>(words, std::bit_cast<std::uint32_t>(1.f)));
      if (!merges) return;
      builder.add_statistics_result();
    }
  }
  if (problem.operation == Operation::cross_entropy_backward) {
    // Close to the logsumexp of normal deviates with standard deviation 2, which the rows hold.
    std::vector<double> lse = filled(problem.rows, log_columns + 2);
    builder.add_vector("lse", argument_of(&CrossEntropyFlags::lse_out), DType::f32, lse);
    return;
  }
  const std::int64_t losses = problem.reduction == Reduction::none ? problem.rows : 1;
  builder.add_result("loss", offsetof(Arguments, loss), problem.loss_dtype, losses);
  for (const CrossEntropyOutput& output : cross_entropy_outputs)
    if (problem.has.*output.field)
      builder.add_result(std::string(output.tensor), argument_of(output), output.dtype_of(problem),
                         output.elements(problem));
}

}  // namespace

Trial timing_trial(const Problem& problem, std::uint64_t seed) {
  Random random(seed);
  TrialBuilder builder(problem, false);
  if (problem.operation == Operation::cross_entropy_merge) {
    add_cross_entropy(builder, random);
    builder.add_scratch();
    return builder.take();
  }
  builder.add_input(pattern(problem.dtype, builder.at().input.bytes,
                            [&](std::span<double> values) { fill_normal(values, random); }));
  if (inputs(problem) == 2)
    builder.add_second(pattern(problem.dtype, builder.at().second.bytes, [&](std::span<double> values) {
      fill_softmax_output(values, problem.columns, row_of(problem.operation).of_logarithm, random);
    }));
  builder.add_output();
  if (is_cross_entropy(problem.operation)) add_cross_entropy(builder, random);
  if (problem.operation == Operation::read)
    builder.add({.name = "sums",
                 .arguments = {offsetof(Arguments, output)},
                 .bytes = static_cast<std::size_t>(problem.rows * problem.columns / 256 + 1) * 4,
                 .initial = {std::byte{0}}});
  if (!is_ceiling(problem.operation)) builder.add_scratch();
  return builder.take();
}

}  // namespace ce::generator
