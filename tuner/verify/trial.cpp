#include "tuner/verify/trial.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <future>
#include <limits>
#include <new>

#include "ce/error.hpp"
#include "tuner/verify/cross_entropy_trial.hpp"
#include "tuner/verify/elements.hpp"
#include "tuner/verify/reference.hpp"
#include "tuner/verify/trial_builder.hpp"
#include "tuner/verify/trial_values.hpp"

namespace ce::generator {
namespace {

/// Error of f32 arithmetic: the rounded exponent of exp(x - max), at most 126 in units of log2, and the sum.
constexpr double f32_error = 2e-5;
/// Error of a sum of many values, relative to the sum of their magnitudes.
constexpr double sum_error = 1e-6;

/// Rows of a verification trial: few if they are wide, and more than one block of the final sum adds up if they are
/// very narrow.
std::int64_t trial_rows(const Problem& problem) {
  const std::int64_t most = problem.columns <= 8 ? 9000 : 48;
  const std::int64_t affordable =
      std::clamp<std::int64_t>((std::int64_t{1} << 20) / problem.columns, 12, most);
  return std::min(affordable, std::max<std::int64_t>(problem.rows, 12));
}

/// Calls visit(row, index) for each row of a dense matrix.
template <class Visit>
void each_row(std::vector<double>& values, std::int64_t columns, const Visit& visit) {
  const auto width = static_cast<std::size_t>(columns);
  for (std::size_t row = 0; row < values.size() / width; ++row)
    visit(std::span(values).subspan(row * width, width), static_cast<std::int64_t>(row));
}

std::size_t elements(const Problem& problem) {
  return static_cast<std::size_t>(problem.rows * problem.columns);
}

Trial forward_trial(const Problem& problem, bool extreme, Random& random) {
  TrialBuilder builder(problem, true);
  const Extremes extremes{.largest = large_logit(problem.dtype), .lowest = -largest(problem.dtype)};
  std::vector<double> values(elements(problem));
  each_row(values, problem.columns, [&](std::span<double> row, std::int64_t index) {
    extreme ? fill_extreme(row, index, extremes, random) : fill_normal(row, random);
  });
  TrialMatrix x = builder.matrix(std::move(values), builder.at().input);
  const bool logarithm = row_of(problem.operation).of_logarithm;
  std::vector<double> y(elements(problem));
  each_row(x.values, problem.columns, [&](std::span<const double> row, std::int64_t index) {
    const auto out = std::span(y).subspan(static_cast<std::size_t>(index) * row.size(), row.size());
    logarithm ? log_softmax_row(row, out) : softmax_row(row, out);
  });
  builder.add_input(std::move(x.bytes));
  builder.add_output();
  builder.add_scratch();
  builder.expect_matrix(std::move(y), f32_error, logarithm ? 4e-6 : 0.);
  return builder.take();
}

/// The gradient is a difference, so its error is that of its terms.
std::vector<float> backward_slack(std::span<const double> dy, std::span<const double> y, bool logarithm,
                                  std::int64_t columns) {
  std::vector<float> slack(dy.size());
  const auto width = static_cast<std::size_t>(columns);
  for (std::size_t start = 0; start < dy.size(); start += width) {
    double sum = 0, size = 0;
    for (std::size_t i = start; i < start + width; ++i) {
      const double term = logarithm ? dy[i] : dy[i] * y[i];
      sum += term;
      size += std::abs(term);
    }
    const double of_sum = f32_error * std::abs(sum) + sum_error * size;
    for (std::size_t i = start; i < start + width; ++i) {
      const double factor = logarithm ? std::exp(y[i]) : std::abs(y[i]);
      const double own = sum_error * std::abs(dy[i]) * (logarithm ? 1. : factor);
      slack[i] = static_cast<float>(own + factor * of_sum);
    }
  }
  return slack;
}

Trial backward_trial(const Problem& problem, bool extreme, Random& random) {
  TrialBuilder builder(problem, true);
  const bool logarithm = row_of(problem.operation).of_logarithm;
  const auto width = static_cast<std::size_t>(problem.columns);
  std::vector<double> gradients(elements(problem)), outputs(elements(problem));
  each_row(gradients, problem.columns, [&](std::span<double> dy, std::int64_t index) {
    const auto y = std::span(outputs).subspan(static_cast<std::size_t>(index) * width, width);
    if (extreme) return fill_extreme_gradient(dy, y, index, logarithm, large_logit(problem.dtype), random);
    fill_normal(dy, random);
    fill_softmax_output(y, problem.columns, logarithm, random);
  });
  TrialMatrix dy = builder.matrix(std::move(gradients), builder.at().input);
  TrialMatrix y = builder.matrix(std::move(outputs), builder.at().second);
  std::vector<double> dx(elements(problem));
  each_row(dx, problem.columns, [&](std::span<double> row, std::int64_t index) {
    const auto of_row = [&](const std::vector<double>& values) {
      return std::span(values).subspan(static_cast<std::size_t>(index) * width, width);
    };
    logarithm ? log_softmax_backward_row(of_row(dy.values), of_row(y.values), row)
              : softmax_backward_row(of_row(dy.values), of_row(y.values), row);
  });
  std::vector<float> slack = backward_slack(dy.values, y.values, logarithm, problem.columns);
  builder.add_input(std::move(dy.bytes));
  builder.add_second(std::move(y.bytes));
  builder.add_output();
  builder.add_scratch();
  builder.expect_matrix(std::move(dx), 0, 0, std::move(slack));
  return builder.take();
}

/// One dense row. The smallest tile determines how many blocks of a `read` write a word; if the row is smaller than
/// that, the first block reads all of it.
Trial ceiling_trial(Problem problem, Random& random) {
  problem.rows = 1;
  TrialBuilder builder(problem, false);
  const auto input = [&](const Placement& placement) {
    std::vector<double> values(elements(problem));
    fill_normal(values, random);
    return builder.matrix(std::move(values), placement);
  };
  TrialMatrix first = input(builder.at().input);
  if (problem.operation == Operation::read) {
    std::uint32_t fold = 0;
    for (std::size_t at = 0; at < first.bytes.size(); at += sizeof fold) {
      std::uint32_t word = 0;
      std::memcpy(&word, first.bytes.data() + at, sizeof word);
      fold ^= word;
    }
    builder.add_input(std::move(first.bytes));
    const std::size_t sums = builder.add({.name = "sums",
                                          .arguments = {offsetof(Arguments, output)},
                                          .bytes = 64,
                                          .initial = {std::byte{0}},
                                          .changes = true});
    builder.expect_bytes({sums, bytes_of(fold)});
    return builder.take();
  }
  std::vector<double> expected = first.values;
  builder.add_input(std::move(first.bytes));
  if (problem.operation == Operation::add) {
    TrialMatrix second = input(builder.at().second);
    std::ranges::transform(expected, second.values, expected.begin(), std::plus{});
    builder.add_second(std::move(second.bytes));
  }
  builder.add_output();
  builder.expect_matrix(std::move(expected), 0, 0);
  return builder.take();
}

std::int64_t memory_of_machine() { return std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE); }

std::vector<Trial> make_trials(const Problem& problem, std::uint64_t seed) {
  Random random(seed);
  Problem small = problem;
  small.rows = trial_rows(problem);
  // Each trial is made on its own thread, if possible: computing millions of values in f64 is most of the time that a
  // search waits for its first kernel.
  std::vector<std::future<Trial>> made;
  const auto make = [&](const auto& trial) {
    made.push_back(
        std::async([trial, small, own = Random(random.next())]() mutable { return trial(small, own); }));
  };
  switch (row_of(problem.operation).family) {
    case Family::softmax:
      for (const bool extreme : {false, true})
        make([extreme](const Problem& few, Random& own) { return forward_trial(few, extreme, own); });
      break;
    case Family::softmax_backward:
      for (const bool extreme : {false, true})
        make([extreme](const Problem& few, Random& own) { return backward_trial(few, extreme, own); });
      break;
    case Family::cross_entropy:
      for (const Rows rows : {Rows::ordinary, Rows::extreme, Rows::confident})
        if (rows != Rows::confident || !problem.probabilities)
          make([rows](const Problem& few, Random& own) { return cross_entropy_trial(few, rows, own); });
      break;
    case Family::ceiling: make(ceiling_trial); break;
  }
  std::vector<Trial> trials;
  trials.reserve(made.size());
  for (std::future<Trial>& trial : made) trials.push_back(trial.get());
  return trials;
}

}  // namespace

std::int64_t verification_bytes(const Problem& problem) {
  // A trial has the values of each matrix in f64, as they are read or expected.
  const std::int64_t rows = row_of(problem.operation).family == Family::ceiling ? 1 : trial_rows(problem);
  const std::int64_t matrices = inputs(problem) + (has_output(problem) ? 1 : 0);
  return matrices * rows * problem.columns * std::int64_t{sizeof(double)};
}

std::vector<Trial> verification_trials(const Problem& problem, std::uint64_t seed) {
  const std::int64_t needed = verification_bytes(problem), there = memory_of_machine();
  const auto refusal = [&] {
    return OutOfMemory("verification", 0,
                       fmt::format("inputs and references of {} take {} bytes or more; this machine has {}",
                                   title(problem), needed, there));
  };
  if (needed > there) throw refusal();
  try {
    return make_trials(problem, seed);
  } catch (const std::bad_alloc&) {
    throw refusal();
  }
}

}  // namespace ce::generator
