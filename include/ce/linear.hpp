#pragma once
/// \file
/// Cross entropy of what a linear layer makes, without its logits in memory.

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
/// The tokens are taken in chunks. For each, one product makes the logits in scratch memory, a kernel of CrossEntropy
/// replaces them by their gradient, one product makes the gradient of the hidden states, and one adds to that of the
/// weight. The products are cuBLASLt's. A gradient that is not given costs no product. So logits and their gradient take
/// memory for one chunk. Without gradients, 16-bit matrices and class indices have no logits in memory on Hopper, unless
/// the call names its chunks: docs/linear.md.
///
/// Where ranks share the classes, run() takes a Shard.
///
/// Everything else is as in CrossEntropy: a mean is one over all tokens (with a divisor of 0 it is NaN where a chunk has no
/// loss). A target out of range counts for Context::check() under its row in its chunk.
struct CE_API LinearCrossEntropy {
  static constexpr std::string_view name = "LinearCrossEntropy";  ///< in messages

  CrossEntropy cross_entropy = {};  ///< its options
  /// Bytes that a call may take beyond its tensors, for logits and what it sums in f32. 0: a tenth of what is free when
  /// a problem of this shape is first met. A call that cannot do with so little takes the chunks that are least.
  std::int64_t memory_budget = 0;
  /// Tokens of a chunk. 0: as many as the budget holds, in chunks of about one size, or a half, a quarter or an eighth of
  /// them where the race of a first call has found that to be faster.
  std::int64_t chunk_tokens = 0;
  std::optional<DType> logits_dtype = {};  ///< f32, or that of hidden; unset: that of hidden
  /// What the gradient of the weight is summed in over chunks: f32, or its own dtype, to which every chunk rounds it. Unset:
  /// f32 where there is more than one chunk and the budget holds it beside a chunk of 256 tokens.
  std::optional<DType> accumulation = {};
  /// How many tokens have another target than ignore_index, or more: then those that are left out are in no product. The rows
  /// that count are put next to each other on the device, in ascending order, and nothing waits for it. Of a token that is
  /// left out the losses, hidden_grad, logprob and entropy are 0, lse is NaN, argmax -1 and hit 0. Where more tokens count
  /// than this, all losses, logprobs, entropies and weight_grad are NaN. Only with class indices. Unset: all tokens are in
  /// the products.
  std::optional<std::int64_t> valid_tokens = {};
  /// Whether the product that makes the logits leaves their exponentials in place of them, so that no pass over the logits is
  /// needed: a factor of each token makes them the gradient. Its hidden states are multiplied by that factor, and rounded once
  /// more, for the products that make the gradient of the weight. It serves bf16 with class indices on Hopper, without bias,
  /// class_weight, row_scale, entropy_upstream, label smoothing and token scaling. Unset: where the race of a first call has
  /// found it to be faster. True is refused where it does not serve.
  std::optional<bool> exponentials = {};

  struct Tensors {
    ConstTensor hidden;     ///< [tokens, hidden], f32, f16 or bf16; rows of adjacent elements, evenly apart
    ConstTensor weight;     ///< [classes, hidden], of the dtype of hidden, and with such rows
    ConstTensor bias = {};  ///< optional: [classes], f32, f16 or bf16; rounded to the logits' dtype
    ConstTensor
        target;  ///< [tokens] class indices, i32 or i64; or probabilities [tokens, classes] of the logits' dtype
    Tensor loss = {};           ///< optional: [tokens] for reduction none, else [1]; f32 or the logits' dtype
    Tensor hidden_grad = {};    ///< optional: as hidden
    Tensor weight_grad = {};    ///< optional: dense [classes, hidden], f32 or the dtype of the weight
    Tensor bias_grad = {};      ///< optional, with bias: [classes], f32 or the dtype of the bias
    ConstTensor upstream = {};  ///< optional, with gradients: [1] or [tokens] of the loss's dtype
    ConstTensor class_weight = {};  ///< optional: [classes], f32 or the logits' dtype; CrossEntropy's weight
    Tensor z_loss_out = {};         ///< from here on as in CrossEntropy
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
    /// optional: u8 [LinearSchedule::workspace_bytes] or more, aligned to 256 bytes. Without it the Context keeps memory for
    /// each stream, as much as its largest call needs; a call that is captured into a graph finds it only where one that
    /// was not has made it.
    Tensor workspace = {};
  };

  friend bool operator==(const LinearCrossEntropy&, const LinearCrossEntropy&) = default;
};

/// How a call of LinearCrossEntropy is done.
struct LinearSchedule {
  std::int64_t chunk_tokens = 0;  ///< of each chunk but the last, which may have fewer
  std::int64_t chunks = 0;        ///< 0 without tokens
  /// Beyond the tensors; before a race the most that one of its plans takes.
  std::int64_t workspace_bytes = 0;
  DType accumulation = DType::f32;  ///< of the gradient of the weight, over chunks
  bool exponentials = false;        ///< gradients are made of them, not of logits
};

}  // namespace ce
