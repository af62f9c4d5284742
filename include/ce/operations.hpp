#pragma once
/// \file
/// The operations, their options and their tensors.
///
/// Matrices are [rows, columns] of f32, f16 or bf16; arithmetic is in f32. A tensor of [rows], [columns] or [1] is
/// contiguous, as one column or as one row. A tensor whose `data` is null is not given. Each Tensor is an output: it
/// must not overlap any other tensor between its first and last element, unless its description allows exactly the same
/// view as another tensor's. Each ConstTensor is only read, and may overlap other inputs. Options at their defaults
/// cost nothing: they are not in the kernel.

#include <cstdint>
#include <string_view>

#include "ce/dtype.hpp"
#include "ce/export.hpp"
#include "ce/language.hpp"
#include "ce/tensor.hpp"

namespace ce {

/// Softmax over each row: y[i] = exp(x[i] - max(x)) / sum_j exp(x[j] - max(x)).
///
/// A row that holds NaN, +infinity, or nothing but -infinity becomes NaN, as in PyTorch.
struct CE_API Softmax {
  static constexpr std::string_view name = "Softmax";  ///< in error messages

  struct Tensors {
    ConstTensor input;  ///< [rows, columns]
    Tensor output;      ///< as the input; may be the input itself
  };

  friend bool operator==(const Softmax&, const Softmax&) = default;
};

/// The logarithm of softmax over each row: y[i] = x[i] - log(sum_j exp(x[j])). A row without a softmax (see Softmax)
/// becomes NaN, as in PyTorch.
struct CE_API LogSoftmax {
  static constexpr std::string_view name = "LogSoftmax";  ///< in error messages

  struct Tensors {
    ConstTensor input;  ///< [rows, columns]
    Tensor output;      ///< as the input; may be the input itself
  };

  friend bool operator==(const LogSoftmax&, const LogSoftmax&) = default;
};

/// The gradient of Softmax: dx[i] = y[i] (dy[i] - sum_j dy[j] y[j]).
struct CE_API SoftmaxBackward {
  static constexpr std::string_view name = "SoftmaxBackward";  ///< in error messages

  struct Tensors {
    ConstTensor output;       ///< [rows, columns]: y, what Softmax wrote
    ConstTensor output_grad;  ///< as the output: dy
    Tensor input_grad;        ///< as the output: dx; may be output_grad itself
  };

  friend bool operator==(const SoftmaxBackward&, const SoftmaxBackward&) = default;
};

/// The gradient of LogSoftmax: dx[i] = dy[i] - exp(y[i]) sum_j dy[j].
struct CE_API LogSoftmaxBackward {
  static constexpr std::string_view name = "LogSoftmaxBackward";  ///< in error messages

  struct Tensors {
    ConstTensor output;       ///< [rows, columns]: y, what LogSoftmax wrote
    ConstTensor output_grad;  ///< as the output: dy
    Tensor input_grad;        ///< as the output: dx; may be output_grad itself
  };

  friend bool operator==(const LogSoftmaxBackward&, const LogSoftmaxBackward&) = default;
};

struct CE_API CrossEntropyBackward;

/// Cross entropy of rows of logits x, and on demand its gradient with respect to the logits, in one pass.
///
/// The logits are transformed first: z = cap tanh(scale x / cap), or scale x without a cap. With
/// lse = log(sum_j exp(z[j])), class weights w (1 without) and smoothing e, the loss of a row is
///
///     target t:         (1 - e) w[t] (lse - z[t]) + e / columns sum_i w[i] (lse - z[i])   + z-loss
///     probabilities p:  sum_i w[i] ((1 - e) p[i] + e / columns) (lse - z[i])              + z-loss
///
/// times the row's weight, and times p[t]^token_scaling, with p[t] the probability of the target, which is treated as a
/// constant: no gradient is taken of it (power 1: the token scaling of Liger-Kernel, or dynamic fine-tuning; Wu et al.,
/// 2025).
///
/// The z-loss is z_loss x lse squared, without class weights. A term whose weight, probability or (1 - e) is 0 is 0,
/// also if the class is masked with -infinity (PyTorch has NaN there). Everything is as in PyTorch if PyTorch has the
/// option, and as in Liger-Kernel for z-loss and cap.
///
/// `mean` divides by the sum of w[t] over the rows that are not ignored (without weights their number), the
/// z-loss by their number; with probabilities, both by the number of rows. If all rows are ignored the mean
/// is NaN. With a `divisor` it divides both by that instead; without rows it is then 0. Weights of rows are not counted.
///
/// A row whose target is `ignore_index` has loss 0, z-loss 0, gradient 0, hit 0, logprob 0 and entropy 0. A target that
/// is neither a class nor `ignore_index` never reads outside the row: that row's loss, z-loss, gradient, logprob and
/// entropy are NaN, its hit is 0, and Context::check() throws. `lse`, of z, and `argmax`, of the logits, are written
/// for every row; `lse` is NaN if a z is +infinity or NaN. With a cap the z of a logit of +infinity is the cap.
struct CE_API CrossEntropy {
  static constexpr std::string_view name = "CrossEntropy";  ///< in error messages

  std::int64_t ignore_index = -100;  ///< not used with probabilities
  Reduction reduction = Reduction::mean;
  float label_smoothing = 0;  ///< e above, 0 to 1; 0: off
  float z_loss = 0;           ///< factor of lse squared, 0 to 2^60; 0: off
  float softcap = 0;          ///< cap above, 2^-60 to 2^60; 0: off
  float logit_scale = 1;      ///< scale above, 2^-60 to 2^60; 1: off
  float token_scaling = 0;  ///< power above, 0 to 16, with class indices; 0: off. Less than e^-32 counts as 0

  struct Tensors {
    ConstTensor logits;       ///< [rows, columns]
    ConstTensor target;       ///< [rows] class indices, i32 or i64; or probabilities, as the logits
    ConstTensor weight = {};  ///< optional: [columns], f32 or the logits' dtype
    ConstTensor upstream =
        {};            ///< optional, with grad: [1] or [rows] of the loss's dtype; multiplies the gradient
    Tensor loss;       ///< [rows] for reduction none, else [1]; f32 or the logits' dtype
    Tensor grad = {};  ///< optional: as the logits; may be the logits themselves
    Tensor z_loss_out = {};  ///< optional, with a factor z_loss: as the loss; the z-loss alone, reduced alike
    Tensor lse = {};         ///< optional: [rows] f32; what CrossEntropyBackward reads
    /// optional: [rows] f32; the rounding error of lse: lse + lse_low is as exact as one pass
    Tensor lse_low = {};
    Tensor argmax = {};  ///< optional: [rows] i64; index of the first largest logit; NaN is larger than all
    Tensor hit = {};     ///< optional, with class indices: [rows] u8; 1 where argmax is the target
    Tensor logprob =
        {};  ///< optional, with class indices: [rows] f32; z[t] - lse, without any option but those of z
    Tensor entropy = {};          ///< optional: [rows] f32; -sum_j p[j] log p[j] with p = softmax of z
    ConstTensor row_weight = {};  ///< optional: [rows] f32; multiplies the row's loss, z-loss and gradient
    /// optional: [rows] f32; multiplies logit_scale, as 1 / temperature of the row. A row whose product is not within
    /// 2^-60 to 2^60 is NaN, unless it is ignored.
    ConstTensor row_scale = {};
    ConstTensor divisor = {};  ///< optional, with the reduction mean: [1] f32; divides the sums
    /// optional, with grad: [rows] f32; gradients of the entropies, which enter that of the logits:
    /// dH/dz[j] = -p[j] (log p[j] + H). Neither upstream nor row_weight multiplies them.
    ConstTensor entropy_upstream = {};
    ConstTensor lse_upstream = {};  ///< optional, with grad: [rows] f32; gradients of lse: dlse/dz[j] = p[j]
    /// optional: [rows] f32: lse, if the caller knows it, for example from an earlier call. The kernel then reads only
    /// the targets' logits; losses and logprob are as exact as this lse. Only with class indices, and without
    /// label_smoothing, grad (CrossEntropyBackward computes it), lse, entropy, argmax and hit.
    ConstTensor given_lse = {};
  };

  /// The operation that computes this one's gradient from the logsumexp, with the same options.
  [[nodiscard]] constexpr CrossEntropyBackward backward() const noexcept;

  friend bool operator==(const CrossEntropy&, const CrossEntropy&) = default;
};

/// The gradient of CrossEntropy with respect to the logits, from the logsumexp that it wrote.
///
/// Options and tensors have the same meaning as there, and must equal those of that call: CrossEntropy::backward()
/// copies the options.
struct CE_API CrossEntropyBackward {
  static constexpr std::string_view name = "CrossEntropyBackward";  ///< in error messages

  std::int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;
  float label_smoothing = 0;
  float z_loss = 0;
  float softcap = 0;
  float logit_scale = 1;
  float token_scaling = 0;

  struct Tensors {
    ConstTensor logits;       ///< [rows, columns]
    ConstTensor target;       ///< [rows] class indices, i32 or i64; or probabilities, as the logits
    ConstTensor weight = {};  ///< optional: [columns], f32 or the logits' dtype
    /// [rows] f32, from CrossEntropy. A row whose lse has lost more to rounding than f32 exponents hold (beyond 10^9,
    /// with a scale or cap that is no power of two) has a gradient of NaN.
    ConstTensor lse;
    ConstTensor upstream =
        {};       ///< optional: [1] or [rows], f32 or the logits' dtype; multiplies the gradient
    Tensor grad;  ///< as the logits; may be the logits themselves
    /// with token_scaling, else optional; with class indices: [rows] f32, from CrossEntropy. With it the gradient of a
    /// target's logit is as exact as that of one pass: lse alone has lost what f32 rounds off beside large logits.
    ConstTensor logprob = {};
    /// optional: [rows] f32, from CrossEntropy. With it the whole gradient is as exact as that of one pass: an lse of
    /// 10^4 alone is off by up to 5e-4, and so is each probability.
    ConstTensor lse_low = {};
    ConstTensor entropy = {};           ///< with entropy_upstream: [rows] f32, CrossEntropy's
    ConstTensor row_weight = {};        ///< optional: [rows] f32
    ConstTensor row_scale = {};         ///< optional: [rows] f32
    ConstTensor divisor = {};           ///< optional, with the reduction mean: [1] f32
    ConstTensor entropy_upstream = {};  ///< optional: [rows] f32
    ConstTensor lse_upstream = {};      ///< optional: [rows] f32
  };

  friend bool operator==(const CrossEntropyBackward&, const CrossEntropyBackward&) = default;
};

constexpr CrossEntropyBackward CrossEntropy::backward() const noexcept {
  // Members are copied one by one, so that a new option does not compile until it is added here.
  const auto& [own_ignore_index, own_reduction, smoothing, z_factor, cap, scale, power] = *this;
  return {.ignore_index = own_ignore_index,
          .reduction = own_reduction,
          .label_smoothing = smoothing,
          .z_loss = z_factor,
          .softcap = cap,
          .logit_scale = scale,
          .token_scaling = power};
}

}  // namespace ce
