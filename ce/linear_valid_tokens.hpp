#pragma once
/// \file
/// The tokens of a linear layer's loss that count, put next to each other: the others are in no product. Not installed.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ce/linear.hpp"
#include "ce/linear_kernels.hpp"
#include "ce/linear_schedule.hpp"

namespace ce {

/// Bytes of what a call reads and writes of each token, for those that count alone.
/// \param shape  all but what is to be found
[[nodiscard]] std::int64_t bytes_of_vectors(const LinearCrossEntropy& operation,
                                            const LinearCrossEntropy::Tensors& tensors,
                                            const LinearShape& shape);

/// The valid tokens of one call, in its workspace. All methods enqueue on the stream, and so nothing is known of how many
/// there are.
/// Where more count than the call says, the others are left out: the losses, and what else has a NaN, are NaN, and so are the
/// rows of hidden that go into the products.
class ValidTokens {
 public:
  /// \param shape  one that drops tokens
  ValidTokens(LinearKernels& kernels, const LinearCrossEntropy& operation,
              const LinearCrossEntropy::Tensors& tensors, const LinearShape& shape, const LinearPlan& plan,
              std::byte* workspace);

  /// The caller's, but with those of [tokens] as long as there are tokens that count.
  [[nodiscard]] const LinearCrossEntropy::Tensors& tensors() const noexcept { return of_valid_; }
  /// [1]: how many tokens count, known when gather() has run.
  [[nodiscard]] const long long* counted() const noexcept { return counted_; }
  /// The rows of a chunk.
  [[nodiscard]] ConstTensor hidden(std::int64_t rows) const noexcept;
  [[nodiscard]] Tensor hidden_grad(std::int64_t rows) const noexcept;

  /// Finds the tokens, and takes what the call reads of each.
  void gather(Stream stream);
  void gather_hidden(std::int64_t first, std::int64_t rows, Stream stream);
  /// The gradient of tokens that are left out is zero.
  void scatter_hidden_grad(std::int64_t first, std::int64_t rows, Stream stream);
  /// What the call has written of each token, or of all.
  void scatter(Stream stream);

 private:
  struct Input {
    ConstTensor of_all, of_valid;
    std::int64_t fill;
  };
  struct Output {
    Tensor of_all, of_valid;
    std::int64_t fill;
    bool may_be_nan;
  };
  [[nodiscard]] Tensor rows_in(const LinearPiece& piece, std::int64_t rows) const noexcept;

  LinearKernels& kernels_;
  const LinearCrossEntropy& operation_;
  const LinearCrossEntropy::Tensors& given_;
  const LinearShape& shape_;
  const LinearPlan& plan_;
  std::byte* const workspace_;
  long long *counted_ = nullptr, *places_ = nullptr, *numbers_ = nullptr;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  LinearCrossEntropy::Tensors of_valid_;
};

}  // namespace ce
