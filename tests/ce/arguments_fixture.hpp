#pragma once
/// \file
/// What the tests of refused arguments share.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>

#include "tests/ce/fixture.hpp"

namespace ce::test {

/// What the message must say.
struct Expectation {
  std::string argument, value, expected;
};

/// Tensors that could be used, for tests that change one thing about them.
class Arguments : public ContextTest {
 protected:
  static constexpr std::int64_t rows = 8, columns = 64;

  void SetUp() override {
    ContextTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    context = std::make_unique<Context>(options(Policy::tune));
    matrix_a = std::make_unique<Matrix>(*context, DType::f32, rows, columns, Layout{.padding = 64});
    matrix_b = std::make_unique<Matrix>(*context, DType::f32, rows, columns, Layout{.padding = 64});
    targets = std::make_unique<Matrix>(*context, DType::i64, rows, 1);
    losses = std::make_unique<Matrix>(*context, DType::f32, rows, 1);
    spare = std::make_unique<Matrix>(*context, DType::f32, 64, 1);
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
        EXPECT_THAT(error.value(), testing::HasSubstr(expectation.value));
        EXPECT_THAT(error.expected(), testing::HasSubstr(expectation.expected));
        EXPECT_THAT(error.what(), testing::HasSubstr(expectation.argument + " is "));
      }
    context->synchronize();
    for (const auto& written : {&matrix_a, &matrix_b, &losses, &spare})
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
  void refuse(Change change, const Expectation& expectation, const CrossEntropy& operation = {}) {
    CrossEntropy::Tensors tensors = entropy;
    if (operation.reduction == Reduction::none) tensors.loss.rows = rows;
    change(tensors);
    expect_refused(operation, tensors, expectation);
  }

  /// A vector in memory that no other tensor has; 256 bytes at most.
  [[nodiscard]] Tensor vector(DType dtype, std::int64_t count) const {
    return {.data = spare->tensor().data, .dtype = dtype, .rows = count};
  }

  template <class Void>
  static Void* moved(const BasicTensor<Void>& tensor, std::int64_t bytes) {
    using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
    return static_cast<Byte*>(tensor.data) + bytes;
  }

  std::unique_ptr<Context> context;
  std::unique_ptr<Matrix> matrix_a, matrix_b, targets, losses, spare;
  Softmax::Tensors softmax;
  CrossEntropy::Tensors entropy;
};

}  // namespace ce::test
