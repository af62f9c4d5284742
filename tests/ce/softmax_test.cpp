// Softmax, its logarithm and their gradients from end to end on one device, in all kinds of views.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostream>

#include "tests/ce/fixture.hpp"
#include "tests/seed.hpp"

namespace ce::test {
namespace {

/// Two views of the same shape, without memory.
struct Views {
  std::string name;
  Tensor input, output;
  bool in_place = false;
};
void PrintTo(const Views& which, std::ostream* out) { *out << which.name; }

class RunViews : public ContextTest, public testing::WithParamInterface<Views> {
 protected:
  /// f(row, column) of every element.
  template <class Function>
  static std::vector<double> filled(const Tensor& shape, Function f) {
    std::vector<double> values;
    for (std::int64_t row = 0; row < shape.rows; ++row)
      for (std::int64_t column = 0; column < shape.columns; ++column) values.push_back(f(row, column));
    return values;
  }
  static std::vector<double> log_softmax(const Tensor& shape, const std::vector<double>& x) {
    const auto at = [&](std::int64_t row, std::int64_t column) {
      return x.at(static_cast<std::size_t>(row * shape.columns + column));
    };
    return filled(shape, [&](std::int64_t row, std::int64_t column) {
      double sum = 0;
      for (std::int64_t i = 0; i < shape.columns; ++i) sum += std::exp(at(row, i) - at(row, column));
      return -std::log(sum);
    });
  }
  static std::vector<double> exp(std::vector<double> values) {
    for (double& value : values) value = std::exp(value);
    return values;
  }
  /// The sum of each row of a x b, for each element.
  static std::vector<double> row_sums(const Tensor& shape, const std::vector<double>& a,
                                      const std::vector<double>& b) {
    return filled(shape, [&](std::int64_t row, std::int64_t) {
      double sum = 0;
      for (std::int64_t i = 0; i < shape.columns; ++i) {
        const auto index = static_cast<std::size_t>(row * shape.columns + i);
        sum += a.at(index) * b.at(index);
      }
      return sum;
    });
  }

  static void expect_output(const Matrix& output, const std::vector<double>& want) {
    expect_near(output.values(), want, 3e-5 + rounding(output.tensor().dtype), 2e-5, "output");
    EXPECT_TRUE(output.frame_is_intact()) << "written beside the rows";
  }

  template <class Forward>
  void forward(bool logarithm) {
    std::mt19937_64 random(test_seed());
    Context context(options(Policy::lookup));
    const Views& views = GetParam();
    Matrix input(context, views.input), elsewhere(context, views.output);
    const std::vector<double> x = input.set(random_values(views.input.rows * views.input.columns, random));
    const Matrix& output = views.in_place ? input : elsewhere;
    context.run(Forward{}, {.input = input.tensor(), .output = output.tensor()});
    context.synchronize();
    const std::vector<double> logarithms = log_softmax(views.input, x);
    expect_output(output, logarithm ? logarithms : exp(logarithms));
  }

  template <class Backward>
  void backward(bool logarithm) {
    std::mt19937_64 random(test_seed());
    Context context(options(Policy::lookup));
    const Views& views = GetParam();
    const std::int64_t count = views.input.rows * views.input.columns;
    Matrix output(context, views.input), output_grad(context, views.output), elsewhere(context, views.output);
    const std::vector<double> logarithms = log_softmax(views.input, random_values(count, random));
    const std::vector<double> y = output.set(logarithm ? logarithms : exp(logarithms));
    const std::vector<double> dy = output_grad.set(random_values(count, random));
    const Matrix& input_grad = views.in_place ? output_grad : elsewhere;
    context.run(
        Backward{},
        {.output = output.tensor(), .output_grad = output_grad.tensor(), .input_grad = input_grad.tensor()});
    context.synchronize();
    const std::vector<double> ones(y.size(), 1);
    const std::vector<double> sums = row_sums(views.input, dy, logarithm ? ones : y);
    std::vector<double> dx;
    for (std::size_t i = 0; i < y.size(); ++i)
      dx.push_back(logarithm ? dy[i] - std::exp(y[i]) * sums[i] : y[i] * (dy[i] - sums[i]));
    expect_output(input_grad, dx);
    EXPECT_EQ(output.values(), y) << "the input changed";
  }
};

TEST_P(RunViews, Softmax) { forward<Softmax>(false); }
TEST_P(RunViews, LogSoftmax) { forward<LogSoftmax>(true); }
TEST_P(RunViews, SoftmaxBackward) { backward<SoftmaxBackward>(false); }
TEST_P(RunViews, LogSoftmaxBackward) { backward<LogSoftmaxBackward>(true); }

Tensor dense(DType dtype, std::int64_t rows, std::int64_t columns) {
  return {.dtype = dtype, .rows = rows, .columns = columns};
}

INSTANTIATE_TEST_SUITE_P(Views, RunViews,
                         testing::Values(Views{.name = "plain",
                                               .input = dense(DType::f32, 6, 100),
                                               .output = dense(DType::f32, 6, 100)},
                                         Views{.name = "in_place_bf16",
                                               .input = dense(DType::bf16, 6, 72),
                                               .output = dense(DType::bf16, 6, 72),
                                               .in_place = true},
                                         Views{.name = "classes_second_to_dense",
                                               .input = class_dimension_second(nullptr, DType::f32, 2, 30, 3),
                                               .output = dense(DType::f32, 6, 30)},
                                         Views{.name = "batched_f16",
                                               .input = batched(nullptr, DType::f16, 2, 3, 64, 5 * 64),
                                               .output = dense(DType::f16, 6, 64)}),
                         [](const auto& about) { return about.param.name; });

}  // namespace
}  // namespace ce::test
