#pragma once
/// \file
/// The operations, their options and their tensors.

#include <cstdint>

#include "ce/base/dtype.hpp"
#include "ce/tensor.hpp"

namespace ce {

/// Softmax over each row: y[i] = exp(x[i] - max(x)) / sum_j exp(x[j] - max(x)).
///
/// Arithmetic is in f32. A row that holds NaN, +infinity, or nothing but -infinity becomes NaN, as in
/// PyTorch.
struct Softmax {
  struct Tensors {
    Tensor input;   ///< [rows, columns], f32, f16 or bf16
    Tensor output;  ///< the same shape and dtype; may be the input itself, must not overlap it otherwise
  };
};

/// Cross entropy of rows of logits x and class indices t: loss = log(sum_j exp(x[j])) - x[t], and on demand
/// the gradient of the reduced loss with respect to the logits, in one pass.
///
/// Arithmetic is in f32. Reductions as in PyTorch: `mean` divides by the number of rows that are not ignored
/// (all ignored gives NaN). A row whose target is `ignore_index` has loss 0 and gradient 0. A target that is
/// neither a class nor `ignore_index` never reads outside the row: that row's loss and gradient are NaN, and
/// Context::check() throws.
struct CrossEntropy {
  std::int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;

  struct Tensors {
    Tensor logits;  ///< [rows, columns], f32, f16 or bf16
    Tensor target;  ///< [rows], i32 or i64
    Tensor loss;    ///< [rows] for reduction none, else [1]; f32 or the dtype of the logits
    Tensor grad;  ///< optional: as the logits; may be the logits themselves, must not overlap them otherwise
  };
};

}  // namespace ce
