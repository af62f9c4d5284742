#pragma once
/// \file
/// Gathers the tokens of a linear layer's loss that count: the products leave out the others. Not installed.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ce/linear.hpp"
#include "ce/linear_kernels.hpp"
#include "ce/linear_plan.hpp"

namespace ce {

/// Bytes of the gathered per-token inputs and outputs of a call.
/// \param shape  complete except for the result
[[nodiscard]] std::int64_t bytes_of_vectors(const LinearCrossEntropy& operation,
                                            const LinearCrossEntropy::Tensors& tensors,
                                            const LinearShape& shape);

/// The valid tokens of one call, in its workspace. All methods enqueue on the stream, so the host does not know how
/// many there are. If more tokens count than the call says, the surplus is left out: the losses, and other outputs that
/// can be NaN, become NaN, and so do the rows of hidden in the products.
class ValidTokens {
 public:
  /// \param shape  a shape that drops tokens
  ValidTokens(LinearKernels& kernels, const LinearCrossEntropy& operation,
              const LinearCrossEntropy::Tensors& tensors, const LinearShape& shape, const LinearPlan& plan,
              std::byte* workspace);

  /// The caller's tensors, but with gathered ones in place of those of [tokens].
  [[nodiscard]] const LinearCrossEntropy::Tensors& tensors() const noexcept { return of_valid_; }
  /// [1]: number of tokens that count, set by gather().
  [[nodiscard]] const long long* counted() const noexcept { return counted_; }
  /// The gathered rows of a chunk.
  [[nodiscard]] ConstTensor hidden(std::int64_t rows) const noexcept;
  [[nodiscard]] Tensor hidden_grad(std::int64_t rows) const noexcept;

  /// Finds the tokens, and gathers the per-token inputs.
  void gather(Stream stream);
  void gather_hidden(std::int64_t first, std::int64_t rows, Stream stream);
  /// Zeroes the gradient of tokens that are left out.
  void scatter_hidden_grad(std::int64_t first, std::int64_t rows, Stream stream);
  /// Scatters the per-token outputs back to all tokens.
  void scatter(Stream stream);

 private:
  struct Input {
    ConstTensor of_all, of_valid;
    std::int64_t fill;
  };
  struct Output {
    Tensor of_all, of_valid;
    std::int64_t fill, fill_of_excess;
  };
  /// Sets a vector to NaN if more tokens count than the call says.
  void spoil_if_exceeded(const Tensor& vector, Stream stream);
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
