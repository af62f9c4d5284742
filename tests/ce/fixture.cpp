#include "tests/ce/fixture.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "ce/device_name.hpp"
#include "generator/config.hpp"
#include "runtime/cuda/device.hpp"
#include "tests/ce/formulas.hpp"
#include "tuner/verify/elements.hpp"

namespace ce::test {
namespace {

constexpr std::byte unwritten{0xff};
constexpr std::int64_t behind = 16;  // elements after the last row
/// log(sum exp(x)) of a row.
double log_sum_exp(const double* row, std::int64_t columns) {
  const double max = *std::max_element(row, row + columns);
  double sum = 0;
  for (std::int64_t i = 0; i < columns; ++i) sum += std::exp(row[i] - max);
  return max + std::log(sum);
}

}  // namespace

std::vector<double> random_values(std::int64_t count, std::mt19937_64& random) {
  std::normal_distribution<double> normal(0., 3.);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& x : values) x = normal(random);
  return values;
}

double rounding(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double relative,
                 double absolute, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i)
    if (std::isnan(want[i]))
      ASSERT_TRUE(std::isnan(got[i])) << what << '[' << i << "] is " << got[i];
    else if (std::isinf(want[i]))
      ASSERT_EQ(got[i], want[i]) << what << '[' << i << ']';
    else
      ASSERT_NEAR(got[i], want[i], absolute + relative * std::abs(want[i])) << what << '[' << i << ']';
}

// ---- Matrix --------------------------------------------------------------------------------------------

Matrix::Matrix(Context& context, DType dtype, std::int64_t rows, std::int64_t columns, Layout layout)
    : Matrix(context,
             Tensor{.dtype = dtype,
                    .rows = rows,
                    .columns = columns,
                    .row_stride = layout.padding > 0 ? columns + layout.padding : contiguous},
             layout.shift) {}

Matrix::Matrix(Context& context, const Tensor& view, std::int64_t shift)
    : tensor_(view),
      shift_(shift),
      memory_(context.allocate(static_cast<std::size_t>(
          ((view.rows > 0 ? index(view.rows - 1, view.columns - 1) + 1 : 0) + behind) *
          size_of(view.dtype)))) {
  tensor_.data = static_cast<std::byte*>(memory_.data()) + shift * size_of(view.dtype);
  memory_.upload(std::vector<std::byte>(memory_.bytes(), unwritten).data());
}

std::int64_t Matrix::index(std::int64_t row, std::int64_t column) const noexcept {
  const std::int64_t batch_rows = tensor_.batch_rows > 0 ? tensor_.batch_rows : tensor_.rows;
  return shift_ + row / batch_rows * tensor_.batch_stride + row % batch_rows * tensor_.row_step() +
         column * tensor_.column_stride;
}

std::vector<double> Matrix::set(const std::vector<double>& values) {
  std::vector<std::byte> all(memory_.bytes(), unwritten);
  std::size_t next = 0;
  for (std::int64_t row = 0; row < tensor_.rows; ++row)
    for (std::int64_t column = 0; column < tensor_.columns; ++column)
      generator::write_element(tensor_.dtype, all.data(), index(row, column), values.at(next++));
  memory_.upload(all.data());
  return this->values();
}

void Matrix::set_indices(const std::vector<std::int64_t>& values) {
  std::vector<std::byte> all(memory_.bytes(), unwritten);
  for (std::size_t i = 0; i < values.size(); ++i)
    generator::write_element(tensor_.dtype, all.data(), shift_ + static_cast<std::int64_t>(i),
                             static_cast<double>(values[i]));
  memory_.upload(all.data());
}

std::vector<double> Matrix::values() const {
  const std::vector<std::byte> all = bytes();
  std::vector<double> values;
  for (std::int64_t row = 0; row < tensor_.rows; ++row)
    for (std::int64_t column = 0; column < tensor_.columns; ++column)
      values.push_back(generator::read_element(tensor_.dtype, all.data(), index(row, column)));
  return values;
}

std::vector<std::int64_t> Matrix::indices() const {
  const std::vector<std::byte> all = bytes();
  const int size = size_of(tensor_.dtype);
  std::vector<std::int64_t> values(static_cast<std::size_t>(tensor_.rows), 0);
  for (std::int64_t row = 0; row < tensor_.rows; ++row)
    std::memcpy(&values[static_cast<std::size_t>(row)], all.data() + index(row, 0) * size,
                static_cast<std::size_t>(size));  // little-endian, and none of them is negative
  return values;
}

std::vector<std::byte> Matrix::bytes() const {
  std::vector<std::byte> all(memory_.bytes());
  memory_.download(all.data());
  return all;
}

bool Matrix::frame_is_intact() const {
  std::vector<std::byte> all = bytes();
  const std::int64_t size = size_of(tensor_.dtype);
  for (std::int64_t row = 0; row < tensor_.rows; ++row)
    for (std::int64_t column = 0; column < tensor_.columns; ++column)
      std::fill_n(all.begin() + index(row, column) * size, size, unwritten);
  return std::ranges::count(all, unwritten) == std::ssize(all);
}

bool Matrix::is_untouched() const {
  const std::vector<std::byte> all = bytes();
  return std::ranges::count(all, unwritten) == std::ssize(all);
}

// ---- calls ---------------------------------------------------------------------------------------------

SoftmaxCall::SoftmaxCall(Context& context, const SoftmaxCase& which, std::uint64_t seed)
    : case_(which),
      input_(context, which.dtype, which.rows, which.columns, which.input),
      output_(context, which.dtype, which.in_place ? 0 : which.rows, which.columns, which.output) {
  std::mt19937_64 random(seed);
  values_ = input_.set(random_values(which.rows * which.columns, random));
  for (std::int64_t row = 0; row < which.rows; ++row) {
    const double* x = values_.data() + row * which.columns;
    const double total = log_sum_exp(x, which.columns);
    for (std::int64_t i = 0; i < which.columns; ++i) expected_.push_back(std::exp(x[i] - total));
  }
}

Softmax::Tensors SoftmaxCall::tensors() const {
  return {.input = input_.tensor(), .output = output().tensor()};
}

void SoftmaxCall::expect_right() const {
  expect_near(output().values(), expected_, 2e-5 + rounding(case_.dtype), 1e-7, "output");
  EXPECT_TRUE(output().frame_is_intact()) << "written beside the rows";
  if (!case_.in_place) {
    EXPECT_EQ(input_.values(), values_) << "the input changed";
  }
}

void SoftmaxCall::spoil() {
  if (!case_.in_place) output_.set(std::vector<double>(values_.size(), 77));
  input_.set(values_);
}

CrossEntropyCall::CrossEntropyCall(Context& context, const CrossEntropyCase& which, std::uint64_t seed)
    : case_(which),
      logits_(context, which.dtype, which.rows, which.columns, which.logits),
      target_(context, which.target_dtype, which.rows, 1),
      loss_(context, which.loss_dtype, which.reduction == Reduction::none ? which.rows : 1, 1),
      grad_(context, which.dtype, which.gradient && !which.in_place ? which.rows : 0, which.columns,
            which.grad) {
  std::mt19937_64 random(seed);
  values_ = logits_.set(random_values(which.rows * which.columns, random));
  std::vector<std::int64_t> targets;
  std::int64_t counted = 0;
  for (std::int64_t row = 0; row < which.rows; ++row) {
    const bool ignored = row % 4 == 2;
    if (!ignored) ++counted;
    targets.push_back(ignored ? ignore_index
                              : std::uniform_int_distribution<std::int64_t>(0, which.columns - 1)(random));
  }
  target_.set_indices(targets);

  const double upstream = which.reduction == Reduction::mean ? 1. / static_cast<double>(counted) : 1.;
  double sum = 0;
  for (std::int64_t row = 0; row < which.rows; ++row) {
    const std::int64_t target = targets[static_cast<std::size_t>(row)];
    const double* x = values_.data() + row * which.columns;
    const double total = log_sum_exp(x, which.columns);
    const double loss = target == ignore_index ? 0 : total - x[target];
    losses_.push_back(loss);
    sum += loss;
    for (std::int64_t i = 0; i < which.columns; ++i)
      gradients_.push_back(
          target == ignore_index ? 0 : (std::exp(x[i] - total) - (i == target ? 1. : 0.)) * upstream);
  }
  if (which.reduction == Reduction::sum) losses_ = {sum};
  if (which.reduction == Reduction::mean) losses_ = {counted > 0 ? sum * upstream : not_a_number};
}

CrossEntropy::Tensors CrossEntropyCall::tensors() const {
  CrossEntropy::Tensors all{
      .logits = logits_.tensor(), .target = target_.tensor(), .loss = loss_.tensor(), .grad = {}};
  if (case_.gradient) all.grad = gradient().tensor();
  return all;
}

void CrossEntropyCall::expect_right() const {
  expect_near(loss_.values(), losses_, 4e-6 + rounding(case_.loss_dtype), 1e-5, "loss");
  EXPECT_TRUE(loss_.frame_is_intact());
  if (case_.gradient) {
    expect_near(gradient().values(), gradients_, 2e-5 + rounding(case_.dtype), 2e-6, "grad");
    EXPECT_TRUE(gradient().frame_is_intact()) << "written beside the rows";
  }
  if (!case_.in_place) {
    EXPECT_EQ(logits_.values(), values_) << "the logits changed";
  }
}

std::vector<std::byte> CrossEntropyCall::result() const {
  std::vector<std::byte> all = loss_.bytes();
  if (!case_.gradient) return all;
  const std::vector<std::byte> matrix = gradient().bytes();
  all.insert(all.end(), matrix.begin(), matrix.end());
  return all;
}

void CrossEntropyCall::spoil() {
  loss_.set(std::vector<double>(losses_.size(), 77));
  if (case_.gradient && !case_.in_place) grad_.set(std::vector<double>(gradients_.size(), 77));
  logits_.set(values_);
}

Choice ContextTest::softmax(Context& context, std::int64_t columns, std::int64_t rows) {
  SoftmaxCall call(context, {.name = "", .rows = rows, .columns = columns}, 1);
  const Choice choice = context.run(Softmax{}, call.tensors());
  context.synchronize();
  call.expect_right();
  return choice;
}

std::string ContextTest::predicted(const generator::Problem& problem) const {
  const std::unique_ptr<runtime::Device> device = open_device(tested_device());
  cache::Cache database = cache::Cache::open(file());
  const auto first = tuner::Tuner(*device, database, {}).likely_configs(problem, 1);
  return first.empty() ? "nothing is near" : generator::to_text(first.front());
}

void ContextTest::SetUp() {
  if (tested_device() == "host" || runtime::cuda_device_count() > 0) return;
  if (is_required("CE_REQUIRE_GPU")) FAIL() << "no GPU";
  GTEST_SKIP() << "no GPU";
}

}  // namespace ce::test
