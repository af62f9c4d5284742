#pragma once
/// \file
/// Cross entropy of the output of a linear layer, without its logits in memory.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ce/dtype.hpp"
#include "ce/export.hpp"
#include "ce/language.hpp"
#include "ce/operations.hpp"
#include "ce/tensor.hpp"

namespace ce {

/// CrossEntropy of the logits hidden x weight^T + bias, and on demand the gradients of all three.
///
/// The tokens are divided into chunks. For each chunk, one product makes the logits in scratch memory, a kernel of
/// CrossEntropy replaces them by their gradient, one product makes the gradient of the hidden states, and one adds to
/// that of the weight. The products are cuBLASLt's. A gradient that is not given costs no product. So logits and their
/// gradient take memory for one chunk. A call without gradients, with 16-bit matrices and class indices, stores no
/// logits at all on Hopper, unless it sets chunk_tokens: see docs/linear.md.
///
/// If ranks share the classes, run() takes a Shard.
///
/// Everything else is as in CrossEntropy: a mean is taken over all tokens (with a divisor of 0 it is NaN if a chunk has no
/// loss). Context::check() reports a target out of range under its row in its chunk.
struct CE_API LinearCrossEntropy {
  static constexpr std::string_view name = "LinearCrossEntropy";  ///< in error messages

  CrossEntropy cross_entropy = {};  ///< its options
  /// Bytes that a call may take beyond its tensors, for logits and f32 sums. 0: a tenth of the free memory when the
  /// first problem of this shape runs. If the budget is too small for any schedule, the call uses the smallest chunks.
  std::int64_t memory_budget = 0;
  /// Tokens of a chunk. 0: as many as the budget holds, in chunks of about equal size, or a half, a quarter or an
  /// eighth of them if the race of the first call found that faster.
  std::int64_t chunk_tokens = 0;
  std::optional<DType> logits_dtype = {};  ///< f32, or that of hidden; unset: that of hidden
  /// Dtype in which the gradient of the weight is summed over chunks: f32, or that of the weight's gradient, to which
  /// every chunk then rounds the sum. Unset: f32 if there is more than one chunk and the budget holds it beside a chunk
  /// of 256 tokens.
  std::optional<DType> accumulation = {};
  /// An upper bound for the number of tokens whose target is not ignore_index: the products then leave out the ignored
  /// tokens. The device gathers the rows that count, in ascending order; nothing waits for it. For an ignored token the
  /// losses, hidden_grad, logprob and entropy are 0, lse is NaN, argmax -1 and hit 0. If more tokens count than this
  /// bound, all losses, logprobs, entropies, weight_grad and bias_grad are NaN, argmax -1 and hit 0. Only with class
  /// indices. Unset: all tokens are in the products.
  std::optional<std::int64_t> valid_tokens = {};
  /// Whether the product of the logits writes their exponentials instead, so that no further pass over the logits is
  /// needed: a factor for each token turns exponentials into the gradient. For the products that make the gradient of
  /// the weight, the hidden states are multiplied by that factor and rounded once more. It supports bf16 with class
  /// indices on Hopper, if all rows of hidden and weight begin on 16 bytes, without bias, class_weight, row_scale,
  /// entropy_upstream, label smoothing and token scaling.
  /// Unset: used if the race of the first call found it faster. True is refused for a call that it does not support.
  std::optional<bool> exponentials = {};

  struct Tensors {
    ConstTensor hidden;     ///< [tokens, hidden], f32, f16 or bf16; contiguous rows at equal distances
    ConstTensor weight;     ///< [classes, hidden], with the dtype of hidden, and with such rows
    ConstTensor bias = {};  ///< optional: [classes], f32, f16 or bf16; is rounded to the logits' dtype
    ConstTensor
        target;  ///< [tokens] class indices, i32 or i64; or probabilities [tokens, classes] of the logits' dtype
    Tensor loss = {};           ///< optional: [tokens] for reduction none, else [1]; f32 or the logits' dtype
    Tensor hidden_grad = {};    ///< optional: as hidden
    Tensor weight_grad = {};    ///< optional: dense [classes, hidden], f32 or the dtype of the weight
    Tensor bias_grad = {};      ///< optional, with bias: [classes], f32 or the dtype of the bias
    ConstTensor upstream = {};  ///< optional, with gradients: [1] or [tokens] of the loss's dtype
    ConstTensor class_weight =
        {};                  ///< optional: [classes], f32 or the logits' dtype; the weight of CrossEntropy
    Tensor z_loss_out = {};  ///< this tensor and those below are as in CrossEntropy
    Tensor lse = {};
    Tensor argmax = {};
    Tensor hit = {};
    Tensor logprob = {};
    Tensor entropy = {};
    ConstTensor row_weight = {};
    ConstTensor row_scale = {};
    ConstTensor divisor = {};
    ConstTensor entropy_upstream = {};
    ConstTensor lse_upstream = {};
    /// optional: u8 [LinearSchedule::workspace_bytes] or more, aligned to 256 bytes. Without it the Context keeps
    /// memory for each stream, as much as its largest call needs. A call that is captured into a graph needs memory
    /// that an earlier call outside of a capture has allocated.
    Tensor workspace = {};
  };

  friend bool operator==(const LinearCrossEntropy&, const LinearCrossEntropy&) = default;
};

/// How a call of LinearCrossEntropy is divided.
struct LinearSchedule {
  std::int64_t chunk_tokens = 0;  ///< tokens of each chunk; the last may have fewer
  std::int64_t chunks = 0;        ///< 0 without tokens
  /// Bytes beyond the tensors; before a race the largest of its plans.
  std::int64_t workspace_bytes = 0;
  DType accumulation = DType::f32;  ///< dtype in which the gradient of the weight is summed over chunks
  bool exponentials = false;        ///< gradients are made of exponentials, not of logits
};

}  // namespace ce
