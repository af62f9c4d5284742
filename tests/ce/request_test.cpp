// How options and views become a problem, and which views are the same one.
#include "ce/request.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <vector>

#include "ce/error.hpp"
#include "ce/row_layout.hpp"
#include "runtime/host/device.hpp"

namespace ce::test {
namespace {

using generator::Alignment;
using generator::Problem;

class RequestTest : public testing::Test {
 protected:
  static constexpr std::int64_t rows = 12, columns = 64;

  /// Memory of its own for as much as any view here reaches over.
  void* memory() {
    blocks_.push_back(std::make_unique<Block>());
    return blocks_.back().get();
  }
  Tensor tensor(DType dtype, std::int64_t tensor_rows, std::int64_t tensor_columns = 1) {
    return {.data = memory(), .dtype = dtype, .rows = tensor_rows, .columns = tensor_columns};
  }
  Tensor matrix() { return tensor(DType::bf16, rows, columns); }
  [[nodiscard]] Request softmax(const Tensor& input, const Tensor& output) const {
    return bind(Softmax{}, {.input = input, .output = output}, *device_);
  }
  CrossEntropy::Tensors loss_tensors() {
    return {.logits = matrix(), .target = tensor(DType::i64, rows), .loss = tensor(DType::f32, 1)};
  }
  [[nodiscard]] Problem problem_of(const CrossEntropy& operation,
                                   const CrossEntropy::Tensors& tensors) const {
    return bind(operation, tensors, *device_).problem;
  }

  std::unique_ptr<runtime::Device> device_ = runtime::open_host_device();

 private:
  struct alignas(256) Block {
    std::byte bytes[32768];
  };
  std::vector<std::unique_ptr<Block>> blocks_;
};

TEST_F(RequestTest, WeightsAreTakenSixteenBytesAtATimeWhereRowsAre) {
  CrossEntropy::Tensors tensors = loss_tensors();
  tensors.weight = tensor(DType::f32, columns);
  const CrossEntropy smoothed{.label_smoothing = 0.1f};
  EXPECT_EQ(problem_of(smoothed, tensors).alignment, Alignment::vector);
  tensors.weight.data = static_cast<const std::byte*>(tensors.weight.data) + 4;
  EXPECT_EQ(problem_of(smoothed, tensors).alignment, Alignment::shifted);
  EXPECT_EQ(problem_of(CrossEntropy{}, tensors).alignment, Alignment::vector)
      << "of the weights only those of targets are read";
}

TEST_F(RequestTest, OptionsThatAreOffAreNotThere) {
  const CrossEntropy::Tensors tensors = loss_tensors();
  const CrossEntropy off{.label_smoothing = 0.f, .z_loss = -0.f, .softcap = 0.f, .logit_scale = 1.f};
  const Problem plain{.operation = generator::Operation::cross_entropy,
                      .dtype = DType::bf16,
                      .reduction = Reduction::mean,
                      .rows = rows,
                      .columns = columns};
  EXPECT_EQ(problem_of(CrossEntropy{}, tensors), plain);
  EXPECT_EQ(problem_of(off, tensors), plain);
}

TEST(CrossEntropyOptions, AreThoseOfTheGradientMadeFromIt) {
  constexpr CrossEntropy forward{.ignore_index = 3,
                                 .reduction = Reduction::sum,
                                 .label_smoothing = 0.1f,
                                 .z_loss = 0.2f,
                                 .softcap = 4.f,
                                 .logit_scale = 5.f};
  constexpr CrossEntropyBackward backward{.ignore_index = 3,
                                          .reduction = Reduction::sum,
                                          .label_smoothing = 0.1f,
                                          .z_loss = 0.2f,
                                          .softcap = 4.f,
                                          .logit_scale = 5.f};
  EXPECT_EQ(forward.backward(), backward);
  EXPECT_EQ(CrossEntropy{}.backward(), CrossEntropyBackward{});
}

TEST_F(RequestTest, EveryOptionIsThere) {
  CrossEntropy::Tensors tensors = loss_tensors();
  tensors.weight = tensor(DType::bf16, columns);
  tensors.logits = tensors.grad = matrix();
  tensors.upstream = tensor(DType::f32, rows);
  tensors.z_loss_out = tensor(DType::f32, 1);
  tensors.lse = tensor(DType::f32, rows);
  tensors.argmax = tensor(DType::i64, rows);
  tensors.hit = tensor(DType::u8, rows);
  const Request request = bind(CrossEntropy{.ignore_index = 5,
                                            .reduction = Reduction::sum,
                                            .label_smoothing = 0.25f,
                                            .z_loss = 2.f,
                                            .softcap = 30.f,
                                            .logit_scale = 0.5f},
                               tensors, *device_);
  EXPECT_EQ(request.problem, (Problem{.operation = generator::Operation::cross_entropy,
                                      .dtype = DType::bf16,
                                      .weight_dtype = DType::bf16,
                                      .reduction = Reduction::sum,
                                      .upstream = generator::Upstream::rows,
                                      .gradient = true,
                                      .weights = true,
                                      .has = {.smoothing = true,
                                              .z_loss = true,
                                              .softcap = true,
                                              .scale = true,
                                              .z_loss_out = true,
                                              .lse_out = true,
                                              .argmax_out = true,
                                              .hit_out = true},
                                      .in_place = true,
                                      .rows = rows,
                                      .columns = columns}));
  EXPECT_NO_THROW(generator::validate(request.problem));
  using Flags = generator::CrossEntropyFlags;
  const Arguments& arguments = request.arguments;
  EXPECT_EQ(amount_of(&generator::CrossEntropyFlags::smoothing, arguments), 0.25f);
  EXPECT_EQ(amount_of(&generator::CrossEntropyFlags::z_loss, arguments), 2.f);
  EXPECT_EQ(amount_of(&generator::CrossEntropyFlags::softcap, arguments), 30.f);
  EXPECT_EQ(amount_of(&generator::CrossEntropyFlags::scale, arguments), 0.5f);
  EXPECT_EQ(arguments.ignore_index, 5);
  EXPECT_EQ(arguments.weight, tensors.weight.data);
  EXPECT_EQ(arguments.upstream, tensors.upstream.data);
  EXPECT_EQ(arguments.loss, tensors.loss.data);
  EXPECT_EQ(generator::output_of<&Flags::z_loss_out>(arguments), tensors.z_loss_out.data);
  EXPECT_EQ(generator::output_of<&Flags::lse_out>(arguments), tensors.lse.data);
  EXPECT_EQ(generator::output_of<&Flags::argmax_out>(arguments), tensors.argmax.data);
  EXPECT_EQ(generator::output_of<&Flags::hit_out>(arguments), tensors.hit.data);
}

TEST_F(RequestTest, WhatIsOnlyReadMayOverlap) {
  CrossEntropy::Tensors tensors = loss_tensors();
  tensors.target.data = tensors.logits.data;
  tensors.weight = tensor(DType::f32, columns);
  tensors.weight.data = tensors.logits.data;
  EXPECT_EQ(bind(CrossEntropy{}, tensors, *device_).arguments.target, tensors.logits.data);
  const Tensor y = matrix(), dx = matrix();
  EXPECT_FALSE(
      bind(SoftmaxBackward{}, {.output = y, .output_grad = y, .input_grad = dx}, *device_).problem.in_place);
}

TEST_F(RequestTest, TargetsAreToldApartByDtype) {
  CrossEntropy::Tensors tensors = loss_tensors();
  tensors.target.dtype = DType::i32;
  const Request indices = bind(CrossEntropy{}, tensors, *device_);
  EXPECT_FALSE(indices.problem.probabilities);
  EXPECT_EQ(indices.problem.target_dtype, DType::i32);
  EXPECT_EQ(indices.arguments.target, tensors.target.data);
  tensors.target = matrix();
  const Request probabilities = bind(CrossEntropy{}, tensors, *device_);
  EXPECT_TRUE(probabilities.problem.probabilities);
  EXPECT_EQ(probabilities.problem.target_dtype, DType::i64) << "there are no indices";
  EXPECT_EQ(probabilities.arguments.second, tensors.target.data);
  EXPECT_EQ(probabilities.arguments.target, nullptr);
}

TEST_F(RequestTest, OneUpstreamGradientOrOneForEachRow) {
  CrossEntropy::Tensors tensors = loss_tensors();
  tensors.grad = matrix();
  EXPECT_EQ(problem_of({}, tensors).upstream, generator::Upstream::one);
  tensors.upstream = tensor(DType::f32, 1);
  EXPECT_EQ(problem_of({}, tensors).upstream, generator::Upstream::scalar);
  tensors.upstream = tensor(DType::f32, 1, rows);  // as a row
  EXPECT_EQ(problem_of({}, tensors).upstream, generator::Upstream::rows);
  tensors.logits.rows = tensors.grad.rows = tensors.target.rows = 1;
  tensors.upstream = tensor(DType::f32, 1);
  EXPECT_EQ(problem_of({}, tensors).upstream, generator::Upstream::scalar);
}

TEST_F(RequestTest, TheGradientOfASumIsThatOfItsLosses) {
  const CrossEntropyBackward::Tensors tensors{.logits = matrix(),
                                              .target = tensor(DType::i64, rows),
                                              .lse = tensor(DType::f32, rows),
                                              .upstream = tensor(DType::bf16, 1),
                                              .grad = matrix()};
  const Request none = bind(CrossEntropyBackward{.reduction = Reduction::none}, tensors, *device_);
  EXPECT_EQ(none.problem, bind(CrossEntropyBackward{.reduction = Reduction::sum}, tensors, *device_).problem);
  EXPECT_NE(none.problem,
            bind(CrossEntropyBackward{.reduction = Reduction::mean}, tensors, *device_).problem);
  EXPECT_EQ(none.problem.loss_dtype, DType::bf16);
  EXPECT_EQ(generator::output_of<&generator::CrossEntropyFlags::lse_out>(none.arguments), tensors.lse.data);
  EXPECT_NO_THROW(generator::validate(none.problem));
}

TEST_F(RequestTest, BackwardReadsTheGradientFirst) {
  const Tensor y = matrix(), dy = matrix(), dx = matrix();
  const Request request =
      bind(SoftmaxBackward{}, {.output = y, .output_grad = dy, .input_grad = dx}, *device_);
  EXPECT_EQ(request.arguments.input, dy.data);
  EXPECT_EQ(request.arguments.second, y.data);
  EXPECT_EQ(request.arguments.output, dx.data);
  EXPECT_FALSE(request.problem.in_place);
  EXPECT_TRUE(bind(LogSoftmaxBackward{}, {.output = y, .output_grad = dy, .input_grad = dy}, *device_)
                  .problem.in_place);
}

TEST_F(RequestTest, ViewsOfEvenlySpacedRowsArePlain) {
  const Tensor plain = matrix();
  const Problem expected = softmax(plain, matrix()).problem;
  EXPECT_FALSE(expected.batched || expected.strided);
  Tensor in_batches = plain;
  in_batches.batch_rows = 3;
  in_batches.batch_stride = 3 * columns;
  EXPECT_EQ(softmax(in_batches, matrix()).problem, expected);
  in_batches.batch_rows = rows;  // a single batch: its stride is never used
  in_batches.batch_stride = 7;
  EXPECT_EQ(softmax(in_batches, matrix()).problem, expected);
  Tensor single_rows = plain;  // batches of one row: only their stride is used
  single_rows.batch_rows = 1;
  single_rows.batch_stride = columns + 8;
  single_rows.row_stride = 3;
  const Request request = softmax(single_rows, matrix());
  EXPECT_EQ(request.problem, expected);
  EXPECT_EQ(request.arguments.input_layout.row, columns + 8);
  EXPECT_EQ(softmax(class_dimension_second(memory(), DType::bf16, rows, columns, 1), matrix()).problem,
            expected);

  EXPECT_TRUE(softmax(in_batches, plain).problem.in_place) << "the same view in other words";
}

TEST_F(RequestTest, BatchesAreSharedByAllMatrices) {
  const Tensor sliced = batched(memory(), DType::bf16, 4, 3, columns, 5 * columns);
  const Request request = softmax(sliced, matrix());
  EXPECT_TRUE(request.problem.batched);
  EXPECT_EQ(request.arguments.batch_rows, 3);
  EXPECT_EQ(request.arguments.input_layout.batch, 5 * columns);
  EXPECT_EQ(request.arguments.input_layout.row, columns);
  EXPECT_EQ(request.arguments.output_layout.batch, 3 * columns);
  EXPECT_EQ(request.arguments.output_layout.row, columns);
}

TEST_F(RequestTest, ClassesThatAreNotTheLastDimension) {
  const Tensor classes_second = class_dimension_second(memory(), DType::bf16, 3, columns, 4);
  const Request request = softmax(classes_second, matrix());
  EXPECT_TRUE(request.problem.strided);
  EXPECT_TRUE(request.problem.batched);
  EXPECT_EQ(request.problem.alignment, Alignment::vector);
  EXPECT_EQ(request.arguments.batch_rows, 4);
  EXPECT_EQ(request.arguments.input_layout.row, 1);
  EXPECT_EQ(request.arguments.input_layout.column, 4);
  EXPECT_EQ(request.arguments.input_layout.batch, 4 * columns);
  EXPECT_EQ(request.arguments.output_layout.column, 1);
  EXPECT_EQ(request.arguments.output_layout.batch, 4 * columns);
  // A matrix whose columns lie one after the other needs no batches.
  const Request transposed =
      softmax(class_dimension_second(memory(), DType::bf16, 1, columns, rows), matrix());
  EXPECT_TRUE(transposed.problem.strided);
  EXPECT_FALSE(transposed.problem.batched);
}

TEST_F(RequestTest, TheStrideOfOneColumnIsNeverUsed) {
  Tensor input = tensor(DType::bf16, rows);
  const Tensor output = tensor(DType::bf16, rows);
  const Problem expected = softmax(input, output).problem;
  input.column_stride = -3;
  const Request request = softmax(input, output);
  EXPECT_EQ(request.problem, expected);
  EXPECT_FALSE(request.problem.strided);
  EXPECT_EQ(request.arguments.input_layout.row, 1);
}

TEST_F(RequestTest, TheStrideOfOneRowIsNeverUsed) {
  Tensor input = tensor(DType::bf16, 1, columns), output = input;
  input.row_stride = 2 * columns;
  output.row_stride = 3 * columns;
  EXPECT_TRUE(softmax(input, output).problem.in_place);
}

/// Batches without a gap between them end with their last row, too.
TEST_F(RequestTest, TheLastRowOfEvenBatchesIsTheirs) {
  const Tensor input = batched(memory(), DType::bf16, 4, 3, columns, 3 * columns);
  const auto at_row = [&](std::int64_t row) {
    Tensor output = matrix();
    output.data = static_cast<std::byte*>(input.data) + row * columns * size_of(DType::bf16);
    return output;
  };
  EXPECT_THROW(static_cast<void>(softmax(input, at_row(rows - 1))), InvalidArgument);
  EXPECT_FALSE(softmax(input, at_row(rows)).problem.in_place);
}

/// Its distances are looked at before they are multiplied.
TEST_F(RequestTest, AColumnStrideBeyond64BitsIsNamed) {
  Tensor input = matrix();
  input.column_stride = std::numeric_limits<std::int64_t>::max() / columns + 1;
  try {
    static_cast<void>(softmax(input, matrix()));
    ADD_FAILURE() << "it was taken";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "input.column_stride");
  }
}

TEST_F(RequestTest, AlignmentIsThatOfAllMatrices) {
  const Tensor y = matrix(), dy = matrix();
  Tensor shifted = matrix();
  shifted.data = static_cast<std::byte*>(shifted.data) + 2;
  const auto alignment = [&](const Tensor& output, const Tensor& grad, const Tensor& result) {
    return bind(SoftmaxBackward{}, {.output = output, .output_grad = grad, .input_grad = result}, *device_)
        .problem.alignment;
  };
  EXPECT_EQ(alignment(y, dy, matrix()), Alignment::vector);
  EXPECT_EQ(alignment(shifted, dy, matrix()), Alignment::element);
  EXPECT_EQ(alignment(y, dy, shifted), Alignment::element);
  // Narrow rows without gaps are dense where all matrices are.
  const Tensor ten = tensor(DType::bf16, rows, 10);
  EXPECT_EQ(softmax(ten, tensor(DType::bf16, rows, 10)).problem.alignment, Alignment::dense);
  Tensor gaps = tensor(DType::bf16, rows, 10);
  gaps.row_stride = 18;
  EXPECT_EQ(softmax(ten, gaps).problem.alignment, Alignment::shifted);
  // So do batches that start elsewhere.
  const Tensor sliced = batched(memory(), DType::bf16, 4, 3, columns, 5 * columns + 1);
  EXPECT_EQ(softmax(sliced, matrix()).problem.alignment, Alignment::element);
}

TEST(RowLayout, ReachesBehindTheLastElement) {
  const ConstTensor batches{
      .dtype = DType::f32, .rows = 6, .columns = 4, .row_stride = 5, .batch_rows = 2, .batch_stride = 100};
  EXPECT_EQ(reach_of(batches), 2 * 100 + 5 + 4);
  EXPECT_EQ(reach_of({.dtype = DType::f32, .rows = 6, .columns = 4, .row_stride = 5}), 5 * 5 + 4);
  EXPECT_EQ(reach_of({.dtype = DType::f32, .rows = 0, .columns = 4}), 0);
}

}  // namespace
}  // namespace ce::test
