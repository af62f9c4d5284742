// Tensors that cannot be used: refused by name, before anything is enqueued.
#include "tests/ce/arguments_fixture.hpp"

namespace ce::test {
namespace {

using testing::HasSubstr;

TEST_F(Arguments, OfSoftmaxByThemselves) {
  refuse_input([](auto& t) { t.columns = -4; }, {"input.columns", "-4", "1 or more"});
  refuse_input([](auto& t) { t.rows = -1; }, {"input.rows", "-1", "0 or more"});
  refuse_input([](auto& t) { t.row_stride = -128; }, {"input.row_stride", "-128", "64 columns"});
  refuse_input([](auto& t) { t.row_stride = 0; }, {"input.row_stride", "0", "64 columns"});
  refuse_input([](auto& t) { t.row_stride = 63; }, {"input.row_stride", "63", "64 columns"});
  refuse_input([](auto& t) { t.column_stride = 0; }, {"input.column_stride", "0", "1 or more"});
  refuse_input([](auto& t) { t.column_stride = 3; }, {"input.row_stride", "128", "at least 190"});
  refuse_input([](auto& t) { t.data = nullptr; }, {"input.data", "null", "device memory"});
  refuse_input([](auto& t) { t.data = moved(t, 2); }, {"input.data", "0x", "aligned to its 4-byte elements"});
  for (const DType dtype : {DType::i32, DType::i64})
    refuse_input([&](auto& t) { t.dtype = dtype; }, {"input.dtype", std::string(name(dtype)), "bf16"});
  refuse_input([](auto& t) { t.dtype = DType(42); }, {"input.dtype", "42", "f32, f16 or bf16"});
  refuse_output([](Tensor& t) { t.dtype = DType(42); }, {"output.dtype", "42", "f32"});
}

TEST_F(Arguments, OfSoftmaxTogether) {
  refuse_output([](Tensor& t) { t.rows = rows - 1; }, {"output.rows", "7", "8 rows of input"});
  refuse_output([](Tensor& t) { t.columns = columns + 1; }, {"output.columns", "65", "64 columns of input"});
  refuse_output([](Tensor& t) { t.dtype = DType::bf16; }, {"output.dtype", "bf16", "f32"});
  refuse_output([](Tensor& t) { t.row_stride = 10; }, {"output.row_stride", "10", "64 columns"});
  refuse_output([](Tensor& t) { t.column_stride = 0; }, {"output.column_stride", "0", "1 or more"});
  refuse_output([](Tensor& t) { t.data = nullptr; }, {"output.data", "null", "device memory"});
  refuse_output([](Tensor& t) { t.data = moved(t, 1); }, {"output.data", "0x", "aligned"});
}

TEST_F(Arguments, Batches) {
  refuse_input([](auto& t) { t.batch_rows = -1; }, {"input.batch_rows", "-1", "0 or more"});
  refuse_input([](auto& t) { t.batch_rows = 3; }, {"input.batch_rows", "3", "divisor of the 8 rows"});
  refuse_input([](auto& t) { t.batch_stride = 64; }, {"input.batch_stride", "64", "batch_rows is 0"});
  const auto batches = [](auto& t, std::int64_t batch_rows, std::int64_t batch_stride) {
    t.batch_rows = batch_rows;
    t.batch_stride = batch_stride;
  };
  // Four rows of 64, 128 apart, reach over 448 elements.
  refuse_input([&](auto& t) { batches(t, 4, 447); }, {"input.batch_stride", "447", "at least 448"});
  refuse_input([&](auto& t) { batches(t, 4, -448); }, {"input.batch_stride", "-448", "at least 1"});
  Softmax::Tensors tensors = softmax;
  batches(tensors.input, 4, 450);
  batches(tensors.output, 2, 200);
  expect_refused(Softmax{}, tensors, {"output.batch_rows", "2", "4, like input"});
  batches(tensors.output, 4, 200);
  expect_refused(Softmax{}, tensors, {"output.batch_stride", "200", "at least 448"});
  // The same rows in the input's memory, but for the distance of the batches.
  tensors.output.data = matrix_a->tensor().data;
  tensors.output.batch_stride = 452;
  expect_refused(Softmax{}, tensors, {"output.data", "overlapping input", "exactly input"});
}

TEST_F(Arguments, DistancesBeyond64Bits) {
  constexpr std::int64_t far = std::int64_t{1} << 60;
  refuse_input([](auto& t) { t.row_stride = far; }, {"input.row_stride", "", "64 bits"});
  refuse_input([](auto& t) { t.column_stride = far; }, {"input.column_stride", "", "64 bits"});
  refuse_input([](auto& t) { t.rows = far; }, {"input.row_stride", "128", "64 bits"});
  refuse_input(
      [](auto& t) {
        t.batch_rows = 1;
        t.batch_stride = far;
      },
      {"input.batch_stride", "", "64 bits"});
  const auto expect_thrown = [](const auto& make, const char* argument) {
    try {
      static_cast<void>(make());
      ADD_FAILURE() << argument << " was taken";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), argument);
    }
  };
  expect_thrown([] { return class_dimension_second(nullptr, DType::f32, far, 2, far); }, "outer");
  expect_thrown([] { return class_dimension_second(nullptr, DType::f32, 1, far, far); }, "classes");
  expect_thrown([] { return class_dimension_second(nullptr, DType::f32, 1, 2, -1); }, "inner");
  expect_thrown([] { return batched(nullptr, DType::f32, far, far, 2, 2); }, "batches");
  expect_thrown([] { return batched(nullptr, DType::f32, 2, -1, 2, 2); }, "batch_rows");
}

TEST_F(Arguments, OfTheBackwardOperations) {
  const Tensor grad = matrix_a->tensor(), other = softmax.output;
  Tensor narrow = other, below = other;
  narrow.columns = columns - 1;
  below.data = moved(other, 512);
  expect_refused(SoftmaxBackward{}, {.output = narrow, .output_grad = grad, .input_grad = grad},
                 {"output.columns", "63", "64 columns of output_grad"});
  expect_refused(LogSoftmaxBackward{}, {.output = other, .output_grad = grad, .input_grad = {}},
                 {"input_grad", "not given", "8 x 64 elements, like output_grad"});
  expect_refused(SoftmaxBackward{}, {.output = other, .output_grad = {}, .input_grad = grad},
                 {"output_grad", "not given", "a tensor"});
  expect_refused(SoftmaxBackward{}, {.output = other, .output_grad = grad, .input_grad = other},
                 {"input_grad.data", "overlapping output", "memory of its own"});
  expect_refused(SoftmaxBackward{}, {.output = grad, .output_grad = grad, .input_grad = grad},
                 {"input_grad.data", "overlapping output", "memory of its own"});
  expect_refused(LogSoftmaxBackward{}, {.output = grad, .output_grad = other, .input_grad = below},
                 {"input_grad.data", "overlapping output_grad", "exactly output_grad"});
}

TEST_F(Arguments, AnInputThatIsNotGivenIsNamed) {
  expect_refused(Softmax{}, {.input = {}, .output = softmax.output}, {"input", "not given", "a tensor"});
}

TEST_F(Arguments, OfCopiesToAndFromMemory) {
  Memory memory = context->allocate(16);
  EXPECT_THROW(memory.upload(nullptr), InvalidArgument);
  EXPECT_THROW(memory.download(nullptr), InvalidArgument);
  Memory none = context->allocate(0);
  none.upload(nullptr);
  none.download(nullptr);
}

TEST_F(Arguments, OutputsThatOverlapInputs) {
  const Tensor input = matrix_a->tensor();
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

TEST_F(Arguments, MemoryOfTheHostOnAGpu) {
  if (tested_device() == "host") GTEST_SKIP() << "the host's memory is the host device's memory";
  std::vector<float> ordinary(rows * columns);
  refuse_input([&](auto& t) { t.data = ordinary.data(); }, {"input.data", "in host memory", "cuda:0"});
  refuse_output([&](Tensor& t) { t.data = ordinary.data(); }, {"output.data", "in host memory", "cuda:0"});
  using Tensors = CrossEntropy::Tensors;
  refuse([&](Tensors& t) { t.target.data = ordinary.data(); }, {"target.data", "in host memory", "cuda:0"});
  refuse([&](Tensors& t) { t.loss.data = ordinary.data(); }, {"loss.data", "in host memory", "cuda:0"});
}

TEST_F(Arguments, ShapesThatNoKernelTakes) {
  // Too many columns for the 32-bit indices of the kernels; the memory behind them is not looked at.
  const std::int64_t wide = (std::int64_t{1} << 30) + 1;
  Softmax::Tensors tensors = softmax;
  tensors.output = {.data = matrix_a->tensor().data, .rows = 1, .columns = wide};
  tensors.input = tensors.output;
  expect_refused(Softmax{}, tensors, {"input.columns", std::to_string(wide), "1 to 1073741824"});
}

TEST(PolicyOfAContext, IsChecked) {
  const Folder folder;
  ContextOptions options;
  options.device = "host";
  options.database = folder.path() / "ce.db";
  options.policy = Policy(77);
  try {
    const Context context(options);
    ADD_FAILURE() << "was taken";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "policy");
    EXPECT_EQ(error.value(), "77");
    EXPECT_EQ(error.expected(), "tune, lookup, frozen or background");
  }
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

TEST_F(Arguments, OfOperationsThatAreNotGiven) {
  const std::string expected = "a tensor; a tensor without rows must still have its number of columns";
  expect_refused(Softmax{}, {}, {"input", "not given", expected});
  expect_refused(LogSoftmax{}, {}, {"input", "not given", expected});
  expect_refused(SoftmaxBackward{}, {}, {"output_grad", "not given", expected});
  expect_refused(CrossEntropy{}, {}, {"logits", "not given", expected});
  expect_refused(CrossEntropy{}, {.logits = {}, .target = {}, .loss = entropy.loss},
                 {"logits", "not given", expected});
  expect_refused(CrossEntropyBackward{}, {}, {"logits", "not given", expected});
}

TEST_F(Arguments, NameTheOperation) {
  try {
    context->run(LogSoftmax{}, {});
    ADD_FAILURE() << "was not refused";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.operation(), "LogSoftmax");
    EXPECT_TRUE(std::string_view(error.what()).starts_with("LogSoftmax: input is not given; expected "))
        << error.what();
  }
}

TEST_F(Arguments, SayWhatIsWrongWithLargeMatricesAndTargetsOfTheWrongKind) {
  refuse_input([](auto& t) { t.columns = std::int64_t{1} << 31; },
               {"input.columns", "2147483648", "1 to 1073741824"});
  refuse_input([](auto& t) { t.rows = std::int64_t{1} << 31; },
               {"input.rows", "2147483648", "0 to 2147483647"});
  refuse([&](auto& t) { t.target.dtype = DType::f32; },
         {"target.dtype", "f32", "i32 or i64 (class indices), because it has one element for each row"});
  refuse([&](auto& t) { t.loss.rows = 2; }, {"loss", "2 x 1", "1 element"});
}

/// Of softmax; there is nothing to compute.
TEST_F(Arguments, MayHaveNoClasses) {
  const Tensor none{.data = nullptr, .dtype = DType::bf16, .rows = 4, .columns = 0};
  EXPECT_NO_THROW(context->run(Softmax{}, {.input = none, .output = none}));
  EXPECT_NO_THROW(
      context->run(LogSoftmaxBackward{}, {.output = none, .output_grad = none, .input_grad = none}));
  Softmax::Tensors tensors{.input = none, .output = none};
  tensors.output.rows = 3;
  expect_refused(Softmax{}, tensors, {"output.rows", "3", "the 4 rows of input"});
}

}  // namespace
}  // namespace ce::test
