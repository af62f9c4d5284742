#pragma once
/// \file
/// The tensors of a linear layer's loss for one chunk of its tokens, as the products and the kernels between them take
/// them. Not installed.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ce/linear.hpp"
#include "ce/linear_plan.hpp"
#include "ce/linear_valid_tokens.hpp"
#include "ce/operations.hpp"
#include "ce/ranks.hpp"
#include "generator/linear.hpp"
#include "runtime/matmul.hpp"
#include "templates/arguments.cuh"
#include "templates/linear_arguments.cuh"
#include "templates/linear_exponentials_arguments.cuh"
#include "templates/linear_statistics_arguments.cuh"
#include "tuner/matmul_race.hpp"

namespace ce {

/// A product and its memory.
struct LinearProduct {
  tuner::TokenMatmul matmul;
  runtime::MatmulOperands operands;
};

/// Enqueues nothing. All methods but those of the whole call are about the tokens of the selected chunk.
class LinearOperands {
 public:
  /// All references must outlive this object.
  /// \param any_order  products may add up their sums in any order
  LinearOperands(LinearKernels& kernels, const LinearCrossEntropy& operation,
                 const LinearCrossEntropy::Tensors& tensors, const LinearShape& shape, const LinearPlan& plan,
                 std::byte* workspace, bool any_order);

  // ---- The whole call ----

  /// The caller's tensors; where ignored tokens are left out, those of [tokens] are gathered ones.
  [[nodiscard]] const LinearCrossEntropy::Tensors& tensors() const noexcept { return tensors_; }
  /// Set if ignored tokens are left out.
  [[nodiscard]] std::optional<ValidTokens>& valid() noexcept { return valid_; }
  /// Whether gradients are made of exponentials.
  [[nodiscard]] bool exponentials() const noexcept { return plan_.schedule.exponentials; }
  /// Whether each chunk writes a part of the loss.
  [[nodiscard]] bool sums_losses() const noexcept { return sums_losses_; }
  /// The piece's memory; null if it has none.
  template <class T = void>
  [[nodiscard]] T* at(const LinearPiece& piece) const noexcept {
    return piece.exists() ? reinterpret_cast<T*>(workspace_ + piece.start) : nullptr;
  }
  /// Options of the kernel that computes statistics along with logits.
  [[nodiscard]] const generator::LinearStatistics& statistics() const noexcept;
  [[nodiscard]] ConstTensor divisor() const;
  /// Members of LinearArguments for the divisor's kernel, and what it is made of.
  [[nodiscard]] generator::LinearDivisor divisor_kernel() const;
  [[nodiscard]] LinearArguments divisor_arguments() const;

  // ---- The chunk ----

  void select(std::int64_t chunk) noexcept;
  [[nodiscard]] std::int64_t chunk() const noexcept { return chunk_; }
  [[nodiscard]] std::int64_t first() const noexcept { return first_; }
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }
  /// The shape of the chunk as a call of its own.
  [[nodiscard]] LinearShape shape() const;

  [[nodiscard]] Tensor hidden_gradient() const;
  [[nodiscard]] ConstTensor upstream() const;

  [[nodiscard]] LinearProduct logits_product() const;
  /// The product of the hidden states' gradient: in f32 if its rows are rounded later, with exponentials after
  /// multiplying by their factors.
  [[nodiscard]] LinearProduct hidden_product() const;
  [[nodiscard]] LinearProduct weight_product(bool accumulates) const;

  [[nodiscard]] LinearStatisticsArguments statistics_arguments() const;
  [[nodiscard]] LinearExponentialsArguments exponentials_arguments() const;
  /// The losses from statistics, in `splits` messages for each row.
  [[nodiscard]] CrossEntropyMerge merge(int splits) const;
  [[nodiscard]] CrossEntropyMerge::Tensors merge_tensors(int splits) const;
  /// The losses from logits.
  [[nodiscard]] CrossEntropy::Tensors losses_tensors() const;

 private:
  [[nodiscard]] ConstTensor hidden() const;
  [[nodiscard]] Arguments row_arguments() const;
  [[nodiscard]] LinearProduct product(runtime::Matmul matmul, std::int64_t runtime::Matmul::*tokens,
                                      const void* a, const void* b, void* d,
                                      const void* bias = nullptr) const;
  /// The gradient of the logits in the dtype of the products.
  [[nodiscard]] const void* logits_gradient() const noexcept;
  [[nodiscard]] Tensor loss() const;
  [[nodiscard]] Tensor z_loss() const;
  /// The inputs and per-row outputs of the losses, however these are computed.
  template <class OfLosses>
  [[nodiscard]] OfLosses rows_of_losses() const;

  const LinearCrossEntropy& operation_;
  const LinearShape& shape_;
  const LinearPlan& plan_;
  std::byte* const workspace_;
  const bool any_order_;
  std::optional<ValidTokens> valid_;
  const LinearCrossEntropy::Tensors tensors_;
  const bool sums_losses_;
  std::int64_t chunk_ = 0, first_ = 0, count_ = 0;
};

}  // namespace ce
