// Tensors that cannot be used: refused by name, before anything is enqueued.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ce/fixture.hpp"

namespace ce::test {
namespace {

using testing::HasSubstr;

constexpr std::int64_t rows = 8, columns = 64;

/// What the message must say.
struct Expectation {
  std::string argument, value, expected;
};

class Arguments : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    context = std::make_unique<Context>(options(Policy::tune));
    matrix_a = std::make_unique<Matrix>(*context, DType::f32, rows, columns, Layout{.padding = 64});
    matrix_b = std::make_unique<Matrix>(*context, DType::f32, rows, columns, Layout{.padding = 64});
    targets = std::make_unique<Matrix>(*context, DType::i64, rows, 1);
    losses = std::make_unique<Matrix>(*context, DType::f32, rows, 1);
    softmax = {.input = matrix_a->tensor(), .output = matrix_b->tensor()};
    entropy = {.logits = matrix_a->tensor(),
               .target = targets->tensor(),
               .loss = losses->tensor(),
               .grad = matrix_b->tensor()};
    entropy.loss.rows = 1;
  }

  /// The place of the caller is in the trace.
  template <class Operation>
  void expect_refused(const Operation& operation, const typename Operation::Tensors& tensors,
                      const Expectation& expectation) {
    SCOPED_TRACE(fmt::format("{} is {}", expectation.argument, expectation.value));
    for (const bool prepares : {false, true}) try {
        if (prepares)
          static_cast<void>(context->prepare(operation, tensors));
        else
          context->run(operation, tensors);
        ADD_FAILURE() << "was not refused";
      } catch (const InvalidArgument& error) {
        EXPECT_EQ(error.argument(), expectation.argument);
        EXPECT_THAT(error.value(), HasSubstr(expectation.value));
        EXPECT_THAT(error.expected(), HasSubstr(expectation.expected));
        EXPECT_THAT(error.what(), HasSubstr(expectation.argument + " is "));
      }
    context->synchronize();
    for (const auto& written : {&matrix_a, &matrix_b, &losses})
      EXPECT_TRUE((*written)->is_untouched()) << "something was written";
    EXPECT_EQ(context->compiled(), 0);
  }
  /// With one member of softmax's input and output changed, or of one of them.
  template <class Change>
  void refuse_input(Change change, const Expectation& expectation) {
    Softmax::Tensors tensors = softmax;
    change(tensors.input);
    change(tensors.output);
    expect_refused(Softmax{}, tensors, expectation);
  }
  template <class Change>
  void refuse_output(Change change, const Expectation& expectation) {
    Softmax::Tensors tensors = softmax;
    change(tensors.output);
    expect_refused(Softmax{}, tensors, expectation);
  }
  template <class Change>
  void refuse(Change change, const Expectation& expectation, Reduction reduction = Reduction::mean) {
    CrossEntropy::Tensors tensors = entropy;
    if (reduction == Reduction::none) tensors.loss.rows = rows;
    change(tensors);
    expect_refused(CrossEntropy{.reduction = reduction}, tensors, expectation);
  }

  static void* moved(const Tensor& tensor, std::int64_t bytes) {
    return static_cast<std::byte*>(tensor.data) + bytes;
  }

  std::unique_ptr<Context> context;
  std::unique_ptr<Matrix> matrix_a, matrix_b, targets, losses;
  Softmax::Tensors softmax;
  CrossEntropy::Tensors entropy;
};

TEST_F(Arguments, OfSoftmaxByThemselves) {
  refuse_input([](Tensor& t) { t.columns = 0; }, {"input.columns", "0", "1 or more"});
  refuse_input([](Tensor& t) { t.columns = -4; }, {"input.columns", "-4", "1 or more"});
  refuse_input([](Tensor& t) { t.rows = -1; }, {"input.rows", "-1", "0 or more"});
  refuse_input([](Tensor& t) { t.row_stride = -128; }, {"input.row_stride", "-128", "64 columns"});
  refuse_input([](Tensor& t) { t.row_stride = 0; }, {"input.row_stride", "0", "64 columns"});
  refuse_input([](Tensor& t) { t.row_stride = 63; }, {"input.row_stride", "63", "64 columns"});
  refuse_input([](Tensor& t) { t.column_stride = 2; }, {"input.column_stride", "2", "1"});
  refuse_input([](Tensor& t) { t.data = nullptr; }, {"input.data", "null", "device memory"});
  refuse_input([](Tensor& t) { t.data = moved(t, 2); },
               {"input.data", "0x", "aligned to its 4-byte elements"});
  for (const DType dtype : {DType::i32, DType::i64})
    refuse_input([&](Tensor& t) { t.dtype = dtype; }, {"input.dtype", std::string(name(dtype)), "bf16"});
}

TEST_F(Arguments, OfSoftmaxTogether) {
  refuse_output([](Tensor& t) { t.rows = rows - 1; }, {"output.rows", "7", "8 rows of input"});
  refuse_output([](Tensor& t) { t.columns = columns + 1; }, {"output.columns", "65", "64 columns of input"});
  refuse_output([](Tensor& t) { t.dtype = DType::bf16; }, {"output.dtype", "bf16", "f32"});
  refuse_output([](Tensor& t) { t.row_stride = 10; }, {"output.row_stride", "10", "64 columns"});
  refuse_output([](Tensor& t) { t.column_stride = 0; }, {"output.column_stride", "0", "1"});
  refuse_output([](Tensor& t) { t.data = nullptr; }, {"output.data", "null", "device memory"});
  refuse_output([](Tensor& t) { t.data = moved(t, 1); }, {"output.data", "0x", "aligned"});
}

TEST_F(Arguments, OutputsThatOverlapInputs) {
  const Tensor input = softmax.input;
  const Expectation overlap{"output.data", "overlapping input", "exactly input"};
  // Down by a row, into the padding, into the row; up by a row; and the same address with another stride.
  for (const std::int64_t elements : {128, 64, 4})
    refuse_output([&](Tensor& t) { t.data = moved(input, elements * 4); }, overlap);
  Tensor lower = input;
  lower.data = moved(input, 512);
  expect_refused(Softmax{}, {.input = lower, .output = input}, overlap);
  refuse_output(
      [&](Tensor& t) {
        t.data = input.data;
        t.row_stride = 64;
      },
      overlap);
}

TEST_F(Arguments, OfCrossEntropyByThemselves) {
  using Tensors = CrossEntropy::Tensors;
  refuse([](Tensors& t) { t.logits.columns = 0; }, {"logits.columns", "0", "1 or more"});
  refuse([](Tensors& t) { t.logits.data = nullptr; }, {"logits.data", "null", "device memory"});
  refuse([](Tensors& t) { t.target.data = nullptr; }, {"target.data", "null", "device memory"});
  refuse([](Tensors& t) { t.loss.data = nullptr; }, {"loss.data", "null", "device memory"});
  refuse([](Tensors& t) { t.grad.data = nullptr; }, {"grad.data", "null", "device memory"});
  refuse([](Tensors& t) { t.target.data = moved(t.target, 4); }, {"target.data", "0x", "8-byte"});
  refuse([](Tensors& t) { t.loss.data = moved(t.loss, 2); }, {"loss.data", "0x", "4-byte"});
  refuse([](Tensors& t) { t.grad.data = moved(t.grad, 2); }, {"grad.data", "0x", "4-byte"});
  refuse([](Tensors& t) { t.grad.row_stride = 32; }, {"grad.row_stride", "32", "64 columns"});
  refuse([](Tensors& t) { t.logits.dtype = DType::i32; }, {"logits.dtype", "i32", "bf16"});
  refuse([](Tensors& t) { t.target.dtype = DType::f32; }, {"target.dtype", "f32", "i32 or i64"});
  refuse([](Tensors& t) { t.loss.dtype = DType::bf16; }, {"loss.dtype", "bf16", "f32"});
  refuse([](Tensors& t) { t.loss.dtype = DType::i32; }, {"loss.dtype", "i32", "f32"});
}

TEST_F(Arguments, OfCrossEntropyTogether) {
  using Tensors = CrossEntropy::Tensors;
  refuse([](Tensors& t) { t.grad.rows = 7; }, {"grad.rows", "7", "8 rows of logits"});
  refuse([](Tensors& t) { t.grad.columns = 63; }, {"grad.columns", "63", "64 columns of logits"});
  refuse([](Tensors& t) { t.grad.dtype = DType::f16; }, {"grad.dtype", "f16", "f32"});
  refuse([](Tensors& t) { t.target.rows = 7; }, {"target", "7 x 1", "8 elements"});
  refuse([](Tensors& t) { t.target.row_stride = 2; }, {"target", "row stride 2", "8 elements, one after"});
  refuse([](Tensors& t) { t.loss.rows = 8; }, {"loss", "8 x 1", "1 elements"});
  refuse([](Tensors& t) { t.loss.rows = 1; }, {"loss", "1 x 1", "8 elements"}, Reduction::none);
  refuse([](Tensors& t) { t.loss.row_stride = 3; }, {"loss", "row stride 3", "8 elements"}, Reduction::none);
}

TEST_F(Arguments, CrossEntropyTensorsThatOverlap) {
  using Tensors = CrossEntropy::Tensors;
  refuse([](Tensors& t) { t.grad.data = moved(t.logits, 512); },
         {"grad.data", "overlapping logits", "exactly logits"});
  refuse([](Tensors& t) { t.loss.data = moved(t.logits, 8); },
         {"loss.data", "overlapping logits", "memory of its own"});
  refuse([](Tensors& t) { t.loss.data = moved(t.grad, 8); },
         {"loss.data", "overlapping grad", "memory of its own"});
  refuse([](Tensors& t) { t.loss.data = moved(t.target, 8); },
         {"loss.data", "overlapping target", "memory of its own"});
  refuse([](Tensors& t) { t.target.data = moved(t.grad, 8); },
         {"target.data", "overlapping grad", "memory of its own"});
  refuse([](Tensors& t) { t.target.data = moved(t.logits, 8); },
         {"target.data", "overlapping logits", "memory of its own"});
}

TEST_F(Arguments, MemoryOfTheHostOnAGpu) {
  if (tested_device() == "host") GTEST_SKIP() << "the host's memory is the host device's memory";
  std::vector<float> ordinary(rows * columns);
  refuse_input([&](Tensor& t) { t.data = ordinary.data(); }, {"input.data", "in host memory", "cuda:0"});
  refuse_output([&](Tensor& t) { t.data = ordinary.data(); }, {"output.data", "in host memory", "cuda:0"});
  using Tensors = CrossEntropy::Tensors;
  refuse([&](Tensors& t) { t.target.data = ordinary.data(); }, {"target.data", "in host memory", "cuda:0"});
  refuse([&](Tensors& t) { t.loss.data = ordinary.data(); }, {"loss.data", "in host memory", "cuda:0"});
}

TEST_F(Arguments, ShapesThatNoKernelTakes) {
  // Too many columns for the 32-bit indices of the kernels; the memory behind them is not looked at.
  const std::int64_t wide = (std::int64_t{1} << 30) + 1;
  Softmax::Tensors tensors = softmax;
  for (Tensor* tensor : {&tensors.input, &tensors.output}) {
    tensor->rows = 1;
    tensor->columns = wide;
    tensor->row_stride = contiguous;
  }
  tensors.output.data = tensors.input.data;
  expect_refused(Softmax{}, tensors, {"columns", std::to_string(wide), "1 to 1073741824"});
}

TEST(DeviceText, IsChecked) {
  const Folder folder;
  for (const char* text : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:0 ", "host:0", "HOST"}) try {
      ContextOptions options;
      options.device = text;
      options.database = folder.path() / "ce.db";
      const Context context(options);
      ADD_FAILURE() << text << " was taken";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), "device");
      EXPECT_EQ(error.value(), '"' + std::string(text) + '"');
      EXPECT_THAT(error.expected(), HasSubstr("\"cuda\", \"cuda:N\" or \"host\""));
    }
}

}  // namespace
}  // namespace ce::test
