#pragma once
/// \file
/// Kernels that run around the products of LinearCrossEntropy. Their parameter is LinearArguments, and their launches take
/// the rows and columns of a Problem.

#include "generator/source.hpp"

namespace ce::generator {

/// Rounds `rows` elements to another dtype.
[[nodiscard]] Program linear_convert(DType from, DType to);

/// What a mean over all chunks is divided by.
struct LinearDivisor {
  DType target_dtype = DType::i64;
  DType weight_dtype = DType::f32;
  bool probabilities = false;  ///< every row counts
  bool weights = false;        ///< classes have them
  bool scales = false;         ///< writes weights that make the number of rows the divisor
};
[[nodiscard]] Program linear_divisor(const LinearDivisor& divisor);

/// The sum of the losses of `rows` chunks.
[[nodiscard]] Program linear_loss_sum(DType loss);

/// The sums of `columns` columns.
[[nodiscard]] Program linear_column_sums(DType element);

}  // namespace ce::generator
