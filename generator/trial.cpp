#include "generator/trial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "generator/elements.hpp"
#include "generator/reference.hpp"

namespace ce::generator {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t ignore_index = -100;

/// Rows of a verification trial: few when they are wide, and more than one block of the final sum adds up
/// when they are very narrow.
std::int64_t trial_rows(std::int64_t columns, std::int64_t most) {
  return std::clamp<std::int64_t>((std::int64_t{1} << 20) / columns, 12, most);
}

// ---- values --------------------------------------------------------------------------------------------

using Random = std::mt19937_64;

double normal(Random& random) { return std::normal_distribution<double>(0., 2.)(random); }

void fill_ordinary(std::span<double> row, Random& random) {
  for (double& x : row) x = normal(random);
}

/// One kind of row after the other: what an overflow, a wrong guard or a lost NaN would betray.
void fill_extreme(std::span<double> row, std::int64_t index, double largest, Random& random) {
  fill_ordinary(row, random);
  double& any = row[std::uniform_int_distribution<std::size_t>(0, row.size() - 1)(random)];
  switch (index % 8) {
    case 0:
      for (double& x : row) x = x > 0 ? largest : -largest;
      break;
    case 1:
      for (double& x : row) x *= largest / 100;
      break;
    case 2:  // whole threads and warps see nothing else than -infinity
      for (double& x : row)
        if (&x != &any) x = -infinity;
      break;
    case 3: std::fill(row.begin(), row.end(), -infinity); break;
    case 4: std::fill(row.begin(), row.end(), -largest); break;
    case 5: any = not_a_number; break;
    case 6: any = infinity; break;
    case 7: any = 60; break;  // a probability next to 1
  }
}

/// A magnitude that every dtype holds and that overflows exp() many times over.
double largest_of(DType dtype) { return dtype == DType::f16 ? 3e4 : 1e30; }

/// Targets at both ends and in between, some ignored; in the extreme trial also some that are no class.
std::int64_t target_for(std::int64_t row, std::int64_t columns, bool extreme, Random& random) {
  if (extreme && row % 32 == 9) return columns;
  if (extreme && row % 32 == 11) return -1;
  // In the extreme trial no kind of row is always ignored.
  if (row % (extreme ? 9 : 8) == 4) return ignore_index;
  if (row % 8 == 1) return 0;
  if (row % 8 == 2) return columns - 1;
  return std::uniform_int_distribution<std::int64_t>(0, columns - 1)(random);
}

// ---- memory --------------------------------------------------------------------------------------------

struct Placement {
  std::size_t offset;   ///< bytes to the first element
  std::int64_t stride;  ///< elements
};

struct Placements {
  Placement input, output;
};

/// Strides and offsets of the problem's alignment class, with padding between the rows.
Placements placements(const Problem& problem, bool padded) {
  const int size = size_of(problem.dtype);
  const std::int64_t per_boundary = 16 / size;
  const std::int64_t whole = (problem.columns + per_boundary - 1) / per_boundary * per_boundary;
  const std::int64_t aligned = whole + (padded ? per_boundary : 0);
  const std::int64_t odd = aligned + 1;
  const auto one = static_cast<std::size_t>(size);
  switch (problem.alignment) {
    case Alignment::vector: return {{0, aligned}, {0, aligned}};
    case Alignment::shifted: return {{one, odd}, {one, problem.in_place ? odd : odd + per_boundary}};
    case Alignment::element: return {{one, odd}, {0, aligned}};
  }
  return {};
}

std::size_t matrix_bytes(const Problem& problem, const Placement& placement) {
  return placement.offset +
         static_cast<std::size_t>(problem.rows * placement.stride * size_of(problem.dtype));
}

struct Matrix {
  std::vector<double> values;  ///< [rows, columns], as the dtype holds them
  std::vector<std::byte> bytes;
};

template <class Fill>
Matrix make_matrix(const Problem& problem, const Placement& placement, const Fill& fill) {
  Matrix matrix{std::vector<double>(static_cast<std::size_t>(problem.rows * problem.columns)),
                std::vector<std::byte>(matrix_bytes(problem, placement), poison)};
  for (std::int64_t row = 0; row < problem.rows; ++row) {
    const std::span<double> values = std::span(matrix.values)
                                         .subspan(static_cast<std::size_t>(row * problem.columns),
                                                  static_cast<std::size_t>(problem.columns));
    fill(values, row);
    std::byte* start = matrix.bytes.data() + placement.offset;
    for (std::int64_t column = 0; column < problem.columns; ++column) {
      double& value = values[static_cast<std::size_t>(column)];
      write_element(problem.dtype, start, row * placement.stride + column, value);
      value = read_element(problem.dtype, start, row * placement.stride + column);
    }
  }
  return matrix;
}

template <class T>
std::vector<std::byte> bytes_of(const T& value, std::size_t count = sizeof(T)) {
  std::vector<std::byte> bytes(count);
  std::memcpy(bytes.data(), &value, count);
  return bytes;
}

// ---- tolerances ----------------------------------------------------------------------------------------

/// Half a unit in the last place of the dtype, relative, and half of its smallest step.
double rounding(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
}
double smallest_step(DType dtype) { return dtype == DType::f16 ? 0x1p-24 : 0x1p-126; }

/// Of the arithmetic in f32: the rounded exponent of exp(x - max), at most 126 in units of log2, and the sum.
constexpr double f32_error = 2e-5;

// ---- the trials ----------------------------------------------------------------------------------------

class Builder {
 public:
  Builder(const Problem& problem, bool padded) : placements_(placements(problem, padded)) {
    trial_.problem = problem;
    trial_.arguments.rows = problem.rows;
    trial_.arguments.input_stride = placements_.input.stride;
    trial_.arguments.output_stride = problem.in_place ? placements_.input.stride : placements_.output.stride;
    trial_.arguments.ignore_index = ignore_index;
  }

  [[nodiscard]] const Placements& at() const { return placements_; }
  [[nodiscard]] const Problem& problem() const { return trial_.problem; }

  std::size_t add(TrialTensor tensor) {
    if (tensor.bytes == 0) tensor.bytes = tensor.initial.size();
    trial_.tensors.push_back(std::move(tensor));
    return trial_.tensors.size() - 1;
  }

  /// The input, and the output where it is the same memory; else the output too. Returns the tensor written.
  std::size_t add_matrices(std::vector<std::byte> input, std::size_t input_bytes, std::size_t output_bytes) {
    TrialTensor tensor{.name = "input",
                       .arguments = {offsetof(Arguments, input)},
                       .bytes = input_bytes,
                       .offset = placements_.input.offset,
                       .initial = std::move(input)};
    if (problem().in_place) {
      tensor.arguments.push_back(offsetof(Arguments, output));
      tensor.changes = true;
      return add(std::move(tensor));
    }
    add(std::move(tensor));
    if (!has_output(problem())) return trial_.tensors.size() - 1;
    return add({.name = "output",
                .arguments = {offsetof(Arguments, output)},
                .bytes = output_bytes,
                .offset = placements_.output.offset,
                .initial = {poison},
                .changes = true});
  }

  void add_targets(std::span<const std::int64_t> targets) {
    const DType dtype = problem().target_dtype;
    std::vector<std::byte> bytes(targets.size() * static_cast<std::size_t>(size_of(dtype)));
    for (std::size_t i = 0; i < targets.size(); ++i)
      write_index(dtype, bytes.data(), static_cast<std::int64_t>(i), targets[i]);
    add({.name = "target", .arguments = {offsetof(Arguments, target)}, .initial = std::move(bytes)});
  }

  /// Loss, status and workspace. Returns the tensor of the loss.
  std::size_t add_results() {
    const std::int64_t losses = problem().reduction == Reduction::none ? problem().rows : 1;
    const std::size_t loss = add({.name = "loss",
                                  .arguments = {offsetof(Arguments, loss)},
                                  .bytes = static_cast<std::size_t>(losses * size_of(problem().loss_dtype)),
                                  .initial = {poison},
                                  .changes = true});
    status_ = add({.name = "status",
                   .arguments = {offsetof(Arguments, status)},
                   .initial = bytes_of(TargetStatus{0, std::numeric_limits<long long>::max()}),
                   .changes = true});
    if (const std::int64_t bytes = workspace_bytes(problem()); bytes > 0) {
      const std::size_t workspace = add({.name = "workspace",
                                         .arguments = {offsetof(Arguments, workspace)},
                                         .bytes = static_cast<std::size_t>(bytes),
                                         .initial = {std::byte{0}}});
      trial_.expected_bytes.push_back({workspace, std::vector<std::byte>(offsetof(Workspace, losses))});
    }
    return loss;
  }

  void expect_status(const TargetStatus& status) {
    trial_.expected_bytes.push_back({status_, bytes_of(status)});
  }
  void expect_bytes(ExpectedBytes bytes) { trial_.expected_bytes.push_back(std::move(bytes)); }
  void expect(Expected expected) { trial_.expected.push_back(std::move(expected)); }
  void expect_matrix(std::size_t tensor, std::vector<double> values, double absolute) {
    expect({.tensor = tensor,
            .dtype = problem().dtype,
            .rows = problem().rows,
            .columns = problem().columns,
            .stride = trial_.arguments.output_stride,
            .values = std::move(values),
            .relative = f32_error + rounding(problem().dtype),
            .absolute = absolute + smallest_step(problem().dtype)});
  }

  [[nodiscard]] Trial take() { return std::move(trial_); }

 private:
  Placements placements_;
  Trial trial_;
  std::size_t status_ = 0;
};

Matrix make_logits(const Builder& builder, bool extreme, Random& random) {
  const double largest = largest_of(builder.problem().dtype);
  return make_matrix(builder.problem(), builder.at().input, [&](std::span<double> row, std::int64_t index) {
    if (extreme)
      fill_extreme(row, index, largest, random);
    else
      fill_ordinary(row, random);
  });
}

Trial softmax_trial(const Problem& problem, bool extreme, Random& random) {
  Builder builder(problem, true);
  Matrix logits = make_logits(builder, extreme, random);
  std::vector<double> expected;
  expected.reserve(logits.values.size());
  const auto width = static_cast<std::size_t>(problem.columns);
  for (std::size_t row = 0; row < logits.values.size(); row += width)
    for (const double y : softmax_row(std::span(logits.values).subspan(row, width))) expected.push_back(y);
  const std::size_t input_bytes = logits.bytes.size();
  const std::size_t output =
      builder.add_matrices(std::move(logits.bytes), input_bytes, matrix_bytes(problem, builder.at().output));
  builder.expect_matrix(output, std::move(expected), 0);
  return builder.take();
}

Trial cross_entropy_trial(const Problem& problem, bool extreme, Random& random) {
  Builder builder(problem, true);
  Matrix logits = make_logits(builder, extreme, random);
  std::vector<std::int64_t> targets;
  for (std::int64_t row = 0; row < problem.rows; ++row)
    targets.push_back(target_for(row, problem.columns, extreme, random));
  CrossEntropyReference reference =
      cross_entropy(logits.values, targets, problem.columns, ignore_index, problem.reduction);

  const std::size_t input_bytes = logits.bytes.size();
  const std::size_t output =
      builder.add_matrices(std::move(logits.bytes), input_bytes, matrix_bytes(problem, builder.at().output));
  builder.add_targets(targets);
  const std::size_t loss = builder.add_results();
  // Near the target the gradient is a difference of two numbers of the size of the upstream gradient.
  if (problem.gradient) builder.expect_matrix(output, std::move(reference.gradient), 1e-6);
  const bool per_row = problem.reduction == Reduction::none;
  builder.expect({.tensor = loss,
                  .dtype = problem.loss_dtype,
                  .rows = per_row ? problem.rows : 1,
                  .columns = 1,
                  .stride = 1,
                  .values = per_row ? std::move(reference.losses) : std::vector<double>{reference.loss},
                  .relative = 2e-6 + rounding(problem.loss_dtype),
                  .absolute = 4e-6});
  builder.expect_status({reference.bad_targets, reference.bad_targets > 0
                                                    ? reference.first_bad_row
                                                    : std::numeric_limits<long long>::max()});
  return builder.take();
}

Trial stream_trial(const Problem& problem, Random& random) {
  Builder builder(problem, false);
  Matrix values = make_logits(builder, false, random);
  const std::size_t bytes = values.bytes.size();
  if (problem.operation == Operation::copy) {
    std::vector<double> expected = values.values;
    const std::size_t output = builder.add_matrices(std::move(values.bytes), bytes, bytes);
    builder.expect_matrix(output, std::move(expected), 0);
    return builder.take();
  }
  std::uint32_t fold = 0;
  for (std::size_t at = 0; at < bytes; at += sizeof fold) {
    std::uint32_t word = 0;
    std::memcpy(&word, values.bytes.data() + at, sizeof word);
    fold ^= word;
  }
  builder.add_matrices(std::move(values.bytes), bytes, 0);
  // The smallest tile decides how many blocks write a word; the trial is smaller than that, so the first has
  // it all.
  const std::size_t sums = builder.add({.name = "sums",
                                        .arguments = {offsetof(Arguments, output)},
                                        .bytes = 64,
                                        .initial = {std::byte{0}},
                                        .changes = true});
  builder.expect_bytes({sums, bytes_of(fold)});
  return builder.take();
}

}  // namespace

std::vector<Trial> verification_trials(const Problem& problem, std::uint64_t seed) {
  Random random(seed);
  Problem small = problem;
  small.rows = std::min<std::int64_t>(trial_rows(problem.columns, problem.columns <= 8 ? 9000 : 48),
                                      std::max<std::int64_t>(problem.rows, 12));
  switch (problem.operation) {
    case Operation::softmax: return {softmax_trial(small, false, random), softmax_trial(small, true, random)};
    case Operation::cross_entropy:
      return {cross_entropy_trial(small, false, random), cross_entropy_trial(small, true, random)};
    case Operation::copy:
    case Operation::read: {
      Problem tiny = problem;
      tiny.rows = 1;
      tiny.columns = problem.columns;
      return {stream_trial(tiny, random)};
    }
  }
  return {};
}

Trial timing_trial(const Problem& problem, std::uint64_t seed) {
  Random random(seed);
  Builder builder(problem, false);
  // A block of ordinary values that repeats, its length no multiple of a row.
  std::vector<std::byte> pattern((std::size_t{1} << 20) + 16 * 37);
  const std::int64_t count = static_cast<std::int64_t>(pattern.size()) / size_of(problem.dtype);
  for (std::int64_t i = 0; i < count; ++i) write_element(problem.dtype, pattern.data(), i, normal(random));
  const std::size_t input_bytes = matrix_bytes(problem, builder.at().input);
  pattern.resize(std::min(pattern.size(), input_bytes));
  builder.add_matrices(std::move(pattern), input_bytes, matrix_bytes(problem, builder.at().output));
  if (problem.operation == Operation::cross_entropy) {
    std::vector<std::int64_t> targets;
    for (std::int64_t row = 0; row < problem.rows; ++row)
      targets.push_back(std::uniform_int_distribution<std::int64_t>(0, problem.columns - 1)(random));
    builder.add_targets(targets);
    builder.add_results();
  }
  if (problem.operation == Operation::read)
    builder.add({.name = "sums",
                 .arguments = {offsetof(Arguments, output)},
                 .bytes = static_cast<std::size_t>(problem.rows * problem.columns / 256 + 1) * 4,
                 .initial = {std::byte{0}}});
  return builder.take();
}

}  // namespace ce::generator
