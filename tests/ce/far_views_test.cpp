// Rows, columns and batches further apart than 32 bits count, on the host device: memory that is never touched costs
// nothing there.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cmath>
#include <ostream>
#include <system_error>

#include "tests/ce/fixture.hpp"
#include "tests/seed.hpp"

namespace ce::test {
namespace {

constexpr std::int64_t far = (std::int64_t{1} << 31) + 16;

struct FarView {
  std::string name;
  Tensor view;
};
void PrintTo(const FarView& which, std::ostream* out) { *out << which.name; }

class FarViews : public ContextTest, public testing::WithParamInterface<FarView> {};

/// Floats that are zero and in no memory until they are written.
class Untouched {
 public:
  explicit Untouched(std::size_t elements) : bytes_(elements * sizeof(float)) {
    void* mapped =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    data_ = static_cast<float*>(mapped);
  }
  ~Untouched() { ::munmap(data_, bytes_); }
  Untouched(const Untouched&) = delete;
  Untouched& operator=(const Untouched&) = delete;

  [[nodiscard]] float* data() const noexcept { return data_; }

 private:
  std::size_t bytes_;
  float* data_ = nullptr;
};

TEST_P(FarViews, SoftmaxInPlace) {
  Tensor view = GetParam().view;
  const auto index = [&](std::int64_t row, std::int64_t column) {
    const std::int64_t of_batch = view.batch_rows > 0 ? row % view.batch_rows : row,
                       batch = view.batch_rows > 0 ? row / view.batch_rows : 0;
    return batch * view.batch_stride + of_batch * view.row_step() + column * view.column_stride;
  };
  const std::int64_t last = index(view.rows - 1, view.columns - 1);
  ASSERT_GT(last, std::int64_t{1} << 31);
  const Untouched memory(static_cast<std::size_t>(last) + 1);
  view.data = memory.data();

  std::mt19937_64 random(test_seed());
  const std::vector<double> values = random_values(view.rows * view.columns, random);
  std::vector<double> want;
  for (std::int64_t row = 0; row < view.rows; ++row) {
    double sum = 0;
    for (std::int64_t column = 0; column < view.columns; ++column) {
      const double value = values.at(static_cast<std::size_t>(row * view.columns + column));
      memory.data()[index(row, column)] = static_cast<float>(value);
      want.push_back(std::exp(value));
      sum += want.back();
    }
    for (std::int64_t i = 0; i < view.columns; ++i) want.end()[-1 - i] /= sum;
  }

  Context context(options(Policy::lookup));
  context.run(Softmax{}, {.input = view, .output = view});
  context.synchronize();
  std::vector<double> got;
  for (std::int64_t row = 0; row < view.rows; ++row)
    for (std::int64_t column = 0; column < view.columns; ++column)
      got.push_back(memory.data()[index(row, column)]);
  expect_near(got, want, 3e-5, 2e-5, "output");
}

INSTANTIATE_TEST_SUITE_P(
    Host, FarViews,
    testing::Values(FarView{"rows", {.rows = 3, .columns = 100, .row_stride = far}},
                    FarView{"columns", {.rows = 5, .columns = 3, .row_stride = 1, .column_stride = far}},
                    FarView{"batches", {.rows = 4, .columns = 100, .batch_rows = 2, .batch_stride = far}}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace ce::test
