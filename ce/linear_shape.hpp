#pragma once
/// \file
/// The shape of a LinearCrossEntropy call: what its checked tensors and options say. Not installed.

#include <compare>
#include <cstdint>
#include <optional>

#include "ce/check_tensor.hpp"
#include "ce/linear.hpp"
#include "ce/ranks.hpp"
#include "generator/linear.hpp"
#include "runtime/device.hpp"
#include "runtime/matmul.hpp"

namespace ce {

/// Everything in a call that its schedule depends on.
struct LinearShape {
  std::int64_t tokens = 0, hidden = 0, classes = 0;  ///< tokens in products
  /// All tokens of the caller, if ignored ones are left out of the products; else 0. There is at least one token in the
  /// products, even if none counts.
  std::int64_t all_tokens = 0;
  std::int64_t valid_tokens = 0;    ///< with all_tokens: the caller's value
  std::int64_t vector_bytes = 0;    ///< with all_tokens: bytes_of_vectors()
  bool upstream_of_tokens = false;  ///< the upstream gradient has an element for each token
  std::int64_t all_classes = 0;     ///< classes of all ranks that share them; else equal to classes
  DType dtype = DType::f32;         ///< dtype of hidden and weight
  DType logits = DType::f32;        ///< dtype of the logits and of their gradient
  Reduction reduction = Reduction::mean;
  bool hidden_grad = false, weight_grad = false, bias_grad = false;
  DType weight_grad_dtype = DType::f32, bias_grad_dtype = DType::f32;
  /// The gradient of hidden is summed in f32 and rounded afterwards: its product may then be split (split_matmuls.hpp).
  bool f32_hidden_product = false;
  bool converts_bias = false;      ///< the bias has another dtype than the logits
  bool converts_upstream = false;  ///< to f32, if there is more than one chunk
  std::int64_t upstreams = 0;      ///< elements of the upstream gradient
  bool has_loss = false;           ///< the caller asks for the loss
  bool scales_weights = false;     ///< scales the classes' weights: see templates/linear/divisor.cuh
  std::int64_t budget = 0;         ///< the caller's value; 0: unset
  std::int64_t chunk_tokens = 0;   ///< the caller's value; 0: unset
  bool f32_accumulation = false, own_accumulation = false;  ///< the caller's choice; neither: unset
  /// The kernel that serves the call without storing logits (linear_statistics.hpp); unset: logits are stored in
  /// chunks.
  std::optional<generator::LinearStatistics> statistics = {};
  /// The kernel that computes exponentials, if the caller wants them or they may be faster; unset: gradients are made
  /// of logits.
  std::optional<generator::LinearStatistics> exponentials = {};
  bool wants_exponentials = false;  ///< the caller asks for exponentials; else they are raced
  int multiprocessors = 0;          ///< set if there is such a kernel

  friend auto operator<=>(const LinearShape&, const LinearShape&) = default;

  [[nodiscard]] bool gradient() const noexcept { return hidden_grad || weight_grad || bias_grad; }
  [[nodiscard]] bool drops_tokens() const noexcept { return all_tokens > 0; }
  /// Elements from one row of the logits to the next: rows start on cache lines.
  [[nodiscard]] std::int64_t logits_stride() const noexcept;
  /// The same for gathered hidden states.
  [[nodiscard]] std::int64_t hidden_stride() const noexcept;
  /// Whether the gradient of the logits must be rounded for the products.
  [[nodiscard]] bool converts_logits() const noexcept {
    return (hidden_grad || weight_grad) && logits != dtype;
  }
};

/// Checks the linear layer's part of a call, and that each tensor of tokens has all of them; CrossEntropy checks the
/// rest.
/// \param shard  given if ranks share the classes: chunk_tokens is then set
/// \throws InvalidArgument
[[nodiscard]] LinearShape shape_of(const LinearCrossEntropy& operation,
                                   const LinearCrossEntropy::Tensors& tensors, const runtime::Device& device,
                                   const Shard* shard = nullptr);

/// The product of the gradient of the logits and the weight for that many tokens: the gradient of their hidden states.
/// \param stride  elements from one row of the result to the next
[[nodiscard]] runtime::Matmul hidden_matmul(const LinearShape& shape, const ConstTensor& weight,
                                            std::int64_t tokens, DType output, std::int64_t stride);

}  // namespace ce
