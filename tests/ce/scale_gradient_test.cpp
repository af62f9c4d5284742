// Context::scale_gradient() from end to end on one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "ce/error.hpp"
#include "tests/ce/fixture.hpp"
#include "tests/seed.hpp"

namespace ce::test {
namespace {

using testing::HasSubstr;

class ScaleGradient : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    if (!IsSkipped()) context = std::make_unique<Context>(options(Policy::frozen));
  }
  /// One number.
  Matrix number(DType dtype, double value) {
    Matrix made(*context, dtype, 1, 1);
    made.set({value});
    return made;
  }

  std::unique_ptr<Context> context;
};

TEST_F(ScaleGradient, MultipliesWhateverTheDtypeTheSizeAndTheFirstAddress) {
  std::mt19937_64 random(test_seed());
  for (const DType dtype : {DType::f32, f16, bf16}) {
    for (const auto& [rows, columns, shift] : {std::array<std::int64_t, 3>{1, 1, 0},
                                               {1, 7, 3},
                                               {3, 5, 1},
                                               {16, 8, 0},
                                               {7, 1001, 5},
                                               {130, 4099, 2}}) {
      Matrix grad(*context, dtype, rows, columns, {.shift = shift});
      std::vector<double> want = grad.set(random_values(rows * columns, random));
      // By 1 last, which leaves everything as it is.
      for (const double factor : {-0.37, 2.0, 1.0}) {
        for (const DType own : {DType::f32, dtype}) {
          const Matrix upstream = number(own, factor);
          context->scale_gradient(grad.tensor(), upstream.tensor());
          context->synchronize();
          const double exact = upstream.values().front();  // a download: once
          for (double& value : want) value *= exact;
          expect_near(grad.values(), want, 1.001 * rounding(dtype), dtype == f16 ? 0x1p-25 : 0,
                      name(dtype).data());
          want = grad.values();
        }
      }
      EXPECT_TRUE(grad.frame_is_intact());
    }
  }
  EXPECT_LE(context->compiled(), 5) << "one kernel for each pair of dtypes";
}

TEST_F(ScaleGradient, LeavesGapsAlone) {
  std::mt19937_64 random(test_seed());
  constexpr std::array<std::pair<const char*, Tensor>, 9> layouts{{
      {"padded rows", {.rows = 5, .columns = 7, .row_stride = 9}},
      {"wide rows", {.rows = 3, .columns = 1030, .row_stride = 1031}},
      {"every second column", {.rows = 4, .columns = 33, .row_stride = 70, .column_stride = 2}},
      {"rows without the last of each batch",
       {.rows = 6, .columns = 11, .row_stride = 11, .batch_rows = 3, .batch_stride = 44}},
      {"classes second, with gaps",
       {.rows = 12, .columns = 5, .row_stride = 1, .column_stride = 7, .batch_rows = 6, .batch_stride = 40}},
      {"classes second, dense",
       {.rows = 12, .columns = 5, .row_stride = 1, .column_stride = 6, .batch_rows = 6, .batch_stride = 30}},
      {"columns outermost", {.rows = 6, .columns = 5, .row_stride = 1, .column_stride = 6}},
      {"one column", {.rows = 700, .columns = 1, .row_stride = 3}},
      {"one row", {.rows = 1, .columns = 300, .column_stride = 2}},
  }};
  for (const DType dtype : {DType::f32, bf16})
    for (const auto& [what, layout] : layouts) {
      Tensor view = layout;
      view.dtype = dtype;
      Matrix grad(*context, view, 3);
      std::vector<double> want = grad.set(random_values(view.rows * view.columns, random));
      for (const double factor : {-0.375, 1.0}) {
        context->scale_gradient(grad.tensor(), number(DType::f32, factor).tensor());
        context->synchronize();
        for (double& value : want) value *= factor;
        expect_near(grad.values(), want, 1.001 * rounding(dtype), 0, what);
        want = grad.values();
      }
      EXPECT_TRUE(grad.frame_is_intact()) << what;
    }
  EXPECT_LE(context->compiled(), 4) << "two kernels for each pair of dtypes";
}

TEST_F(ScaleGradient, FollowsIeeeAndLeavesEveryBitAloneWhereTheFactorIsOne) {
  constexpr double inf = std::numeric_limits<double>::infinity(),
                   nan = std::numeric_limits<double>::quiet_NaN();
  Matrix grad(*context, bf16, 1, 40);
  std::vector<double> values(40, 1);
  values[1] = inf;
  values[2] = -inf;
  values[3] = nan;
  values[4] = -0.0;
  grad.set(values);
  const std::vector<std::byte> before = grad.bytes();
  context->scale_gradient(grad.tensor(), number(DType::f32, 1).tensor());
  context->synchronize();
  EXPECT_EQ(grad.bytes(), before);
  context->scale_gradient(grad.tensor(), number(DType::f32, 0).tensor());
  context->synchronize();
  const std::vector<double> got = grad.values();
  EXPECT_EQ(got[0], 0);
  EXPECT_TRUE(std::isnan(got[1]) && std::isnan(got[2]) && std::isnan(got[3]));
  EXPECT_TRUE(std::signbit(got[4]));
}

TEST_F(ScaleGradient, DoesNothingWithoutElements) {
  const Matrix one = number(DType::f32, 2);
  context->scale_gradient({.data = nullptr, .dtype = bf16, .rows = 0, .columns = 8}, one.tensor());
}

TEST_F(ScaleGradient, RefusesWhatDoesNotFit) {
  const Matrix grad(*context, bf16, 4, 8);
  const Matrix one = number(DType::f32, 2), two(*context, DType::f32, 2, 1), other = number(f16, 2),
               indices(*context, DType::i32, 4, 8);
  const auto refused = [&](const Tensor& tensor, const Tensor& upstream, const char* argument) {
    try {
      context->scale_gradient(tensor, upstream);
      ADD_FAILURE() << argument << " was not refused";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), argument);
      EXPECT_THAT(error.what(), HasSubstr("scale_gradient"));
    }
  };
  refused({}, one.tensor(), "grad");
  Tensor overlapping = grad.tensor();
  overlapping.row_stride = 4;
  refused(overlapping, one.tensor(), "grad.row_stride");
  refused(indices.tensor(), one.tensor(), "grad.dtype");
  refused(grad.tensor(), {}, "upstream");
  refused(grad.tensor(), two.tensor(), "upstream");
  refused(grad.tensor(), other.tensor(), "upstream.dtype");
  EXPECT_TRUE(grad.is_untouched());
}

}  // namespace
}  // namespace ce::test
