#pragma once
/// \file
/// What a call of LinearCrossEntropy asks for, and where its scratch memory lies. Not installed.

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "ce/check_tensor.hpp"
#include "ce/linear.hpp"
#include "ce/ranks.hpp"
#include "generator/linear.hpp"
#include "runtime/device.hpp"
#include "runtime/matmul.hpp"

namespace ce {

/// All of a call that its schedule depends on.
struct LinearShape {
  std::int64_t tokens = 0, hidden = 0, classes = 0;  ///< tokens that are in products
  /// Tokens of the caller, where those that are left out are in no product; else 0. There is a token in the products even
  /// if none counts.
  std::int64_t all_tokens = 0;
  std::int64_t valid_tokens = 0;    ///< with all_tokens, as the caller gave it
  std::int64_t vector_bytes = 0;    ///< with all_tokens: bytes_of_vectors()
  bool upstream_of_tokens = false;  ///< the caller has one number for each
  std::int64_t all_classes = 0;     ///< of all ranks that share them; else as classes
  DType dtype = DType::f32;         ///< of hidden and weight
  DType logits = DType::f32;        ///< of the logits and of their gradient
  Reduction reduction = Reduction::mean;
  bool hidden_grad = false, weight_grad = false, bias_grad = false;
  DType weight_grad_dtype = DType::f32, bias_grad_dtype = DType::f32;
  /// The gradient of hidden is summed in f32 and rounded after it: its product may then be made in two (split_matmuls.hpp).
  bool f32_hidden_product = false;
  bool converts_bias = false;      ///< it has another dtype than the logits
  bool converts_upstream = false;  ///< to f32, where there is more than one chunk
  std::int64_t upstreams = 0;      ///< numbers in the upstream gradient
  bool has_loss = false;           ///< the caller wants it
  bool scales_weights = false;     ///< of the classes: see templates/linear/divisor.cuh
  std::int64_t budget = 0;         ///< as the caller gave it; 0: unset
  std::int64_t chunk_tokens = 0;   ///< the same
  bool f32_accumulation = false, own_accumulation = false;  ///< as the caller asked for; neither: unset
  /// The kernel that serves the call without logits in memory (linear_statistics.hpp); unset: they are made in chunks.
  std::optional<generator::LinearStatistics> statistics = {};
  /// The kernel by which gradients are made of exponentials, where that is wanted or may be faster; unset: they are made of
  /// logits.
  std::optional<generator::LinearStatistics> exponentials = {};
  bool wants_exponentials = false;  ///< as the caller asked for; else they are raced
  int multiprocessors = 0;          ///< where there is such a kernel

  friend auto operator<=>(const LinearShape&, const LinearShape&) = default;

  [[nodiscard]] bool gradient() const noexcept { return hidden_grad || weight_grad || bias_grad; }
  [[nodiscard]] bool drops_tokens() const noexcept { return all_tokens > 0; }
  /// Elements from one row of the logits to the next: whole lines of memory.
  [[nodiscard]] std::int64_t logits_stride() const noexcept;
  /// The same of hidden states that are put next to each other.
  [[nodiscard]] std::int64_t hidden_stride() const noexcept;
  /// The gradient of the logits has to be rounded for the products.
  [[nodiscard]] bool converts_logits() const noexcept {
    return (hidden_grad || weight_grad) && logits != dtype;
  }
};

/// Checks what is the linear layer's of a call, and that each tensor of tokens has all of them; CrossEntropy checks the
/// rest.
/// \param shard  where ranks share the classes: chunk_tokens is then set
/// \throws InvalidArgument
[[nodiscard]] LinearShape shape_of(const LinearCrossEntropy& operation,
                                   const LinearCrossEntropy::Tensors& tensors, const runtime::Device& device,
                                   const Shard* shard = nullptr);

/// The product of the gradient of the logits of so many tokens and the weight: the gradient of their hidden states.
/// \param stride  elements from one row of that to the next
[[nodiscard]] runtime::Matmul hidden_matmul(const LinearShape& shape, const ConstTensor& weight,
                                            std::int64_t tokens, DType output, std::int64_t stride);

/// The bytes from a piece of so many to the next one of a workspace.
[[nodiscard]] std::int64_t bytes_of_piece(std::int64_t bytes) noexcept;

/// A piece of the workspace.
struct LinearPiece {
  std::int64_t start = 0, bytes = 0;
};

struct LinearPlan {
  LinearSchedule schedule;
  int parts = 1;  ///< the chunk has 1 / parts of the tokens of the largest
  /// `logits` are those of the chunk, their gradient or their exponentials.
  LinearPiece valid_tokens, hidden, hidden_grad, statistics, logits, rounded_logits, weight_sum, bias_sum,
      bias, class_weight, divisor, upstream, losses, z_losses, products;
  /// Pieces of exponentials: LinearExponentialsArguments has them.
  LinearPiece reference, raised, maxima, row_factor, target_factor, order, classes_in_order, scaled_hidden;
  /// A piece of exponentials, where the shape has it.
  LinearPiece hidden_product;
};

/// The plan with the largest chunks, of about one size; of logits unless the caller wants exponentials.
/// \param budget  bytes of scratch memory
[[nodiscard]] LinearPlan plan_for(const LinearShape& shape, std::int64_t budget);

/// Plans whose times are worth a comparison: first plan_for(), then chunks of a half, a quarter and an eighth of its tokens;
/// and where exponentials may be faster, the largest chunks and a half of these with them. None takes more than the budget, or
/// rounds the sums of the weight's gradient over chunks more often than the first. plan_for() alone where the caller has chosen
/// the chunks, and where there are none.
[[nodiscard]] std::vector<LinearPlan> plans_for(const LinearShape& shape, std::int64_t budget);

}  // namespace ce
