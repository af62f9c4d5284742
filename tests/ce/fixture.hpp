#pragma once
/// \file
/// What the tests of the public face share: tensors in a Context's memory, the log, and the environment.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "ce/ce.hpp"
#include "generator/problem.hpp"
#include "tests/ce/log_lines.hpp"
#include "tests/environment.hpp"
#include "tests/tuner/fixture.hpp"

namespace ce::test {

constexpr auto bf16 = DType::bf16, f16 = DType::f16;

/// How a tensor lies in its memory.
struct Layout {
  std::int64_t padding = 0;  ///< elements between two rows
  std::int64_t shift = 0;    ///< elements before the first row
};

/// A tensor in device memory. What it does not hold, between and around its rows, is 0xff.
class Matrix {
 public:
  Matrix(Context& context, DType dtype, std::int64_t rows, std::int64_t columns, Layout layout = {});
  /// As the view, but for its data.
  Matrix(Context& context, const Tensor& view, std::int64_t shift = 0);

  [[nodiscard]] const Tensor& tensor() const noexcept { return tensor_; }
  /// \returns the values as the dtype holds them
  std::vector<double> set(const std::vector<double>& values);
  void set_indices(const std::vector<std::int64_t>& values);
  [[nodiscard]] std::vector<double> values() const;
  /// The same of an integer dtype.
  [[nodiscard]] std::vector<std::int64_t> indices() const;
  /// All of its memory.
  [[nodiscard]] std::vector<std::byte> bytes() const;
  /// Whether everything around the rows is as it was.
  [[nodiscard]] bool frame_is_intact() const;
  /// Whether nothing was ever written.
  [[nodiscard]] bool is_untouched() const;

 private:
  [[nodiscard]] std::int64_t index(std::int64_t row, std::int64_t column) const noexcept;
  Tensor tensor_;
  std::int64_t shift_;  ///< elements before the first row
  Memory memory_;
};

/// A call of cross entropy, but for its values.
struct CrossEntropyCase {
  std::string name;
  DType dtype = DType::f32, target_dtype = DType::i64, loss_dtype = DType::f32;
  std::int64_t rows = 12, columns = 100;
  Reduction reduction = Reduction::mean;
  bool gradient = true, in_place = false;
  Layout logits, grad;
};
inline void PrintTo(const CrossEntropyCase& which, std::ostream* out) { *out << which.name; }

/// A call of softmax, but for its values.
struct SoftmaxCase {
  std::string name;
  DType dtype = DType::f32;
  std::int64_t rows = 12, columns = 100;
  bool in_place = false;
  Layout input, output;
};
inline void PrintTo(const SoftmaxCase& which, std::ostream* out) { *out << which.name; }

/// Normally distributed, and as wide as logits are.
[[nodiscard]] std::vector<double> random_values(std::int64_t count, std::mt19937_64& random);

/// The largest relative error of a value that is rounded to the dtype.
[[nodiscard]] double rounding(DType dtype);

/// Each value within `absolute` + `relative` x its size of what it must be, and NaN where that is.
void expect_near(const std::vector<double>& got, const std::vector<double>& want, double relative,
                 double absolute, const char* what);

/// The tensors of a case with random values, and what must come out of them, in f64.
class SoftmaxCall {
 public:
  SoftmaxCall(Context& context, const SoftmaxCase& which, std::uint64_t seed);
  [[nodiscard]] Softmax::Tensors tensors() const;
  void expect_right() const;
  /// The bytes of the output.
  [[nodiscard]] std::vector<std::byte> result() const { return output().bytes(); }
  void spoil();  ///< sets the output to other values, and the input back to its own

 private:
  [[nodiscard]] const Matrix& output() const { return case_.in_place ? input_ : output_; }
  SoftmaxCase case_;
  Matrix input_, output_;
  std::vector<double> values_, expected_;
};

class CrossEntropyCall {
 public:
  static constexpr std::int64_t ignore_index = -7;

  /// Every fourth target is ignore_index.
  CrossEntropyCall(Context& context, const CrossEntropyCase& which, std::uint64_t seed);
  [[nodiscard]] CrossEntropy operation() const {
    return {.ignore_index = ignore_index, .reduction = case_.reduction};
  }
  [[nodiscard]] CrossEntropy::Tensors tensors() const;
  void expect_right() const;
  /// The bytes of loss and gradient.
  [[nodiscard]] std::vector<std::byte> result() const;
  void spoil();  ///< sets loss and gradient to other values, and the logits back to their own

 private:
  [[nodiscard]] const Matrix& gradient() const { return case_.in_place ? logits_ : grad_; }
  CrossEntropyCase case_;
  Matrix logits_, target_, loss_, grad_;
  std::vector<double> values_, losses_, gradients_;
};

/// A program of these tests is built for one device.
[[nodiscard]] std::string tested_device();

/// A folder for the database. Where the program is built for a GPU: skipped without one, and with
/// CE_REQUIRE_GPU=1 a failure.
class ContextTest : public testing::Test {
 protected:
  void SetUp() override;

  [[nodiscard]] std::filesystem::path folder() const { return folder_.path(); }
  [[nodiscard]] std::filesystem::path file() const { return folder() / "ce.db"; }
  [[nodiscard]] ContextOptions options(Policy policy) const {
    ContextOptions chosen;
    chosen.device = tested_device();
    chosen.database = file();
    chosen.policy = policy;
    return chosen;
  }
  /// A softmax in f32, run and checked.
  static Choice softmax(Context& context, std::int64_t columns, std::int64_t rows = 12);
  /// The config that is the best for a problem as far as the database of file() knows.
  [[nodiscard]] std::string predicted(const generator::Problem& problem) const;

 private:
  Folder folder_;
};

}  // namespace ce::test
