// The one parameter of the kernels that run around the products of LinearCrossEntropy. What a kernel does not use stays
// null.
#pragma once

namespace ce {

struct LinearArguments {
  const void* input;
  void* output;
  long long rows;         ///< or elements, of what has no rows
  long long columns;      ///< or classes
  long long stride;       ///< elements from one row of the input to the next
  long long accumulates;  ///< 1: what the output holds is added

  const void* target;     ///< [rows]
  const void* weight;     ///< [columns]: of the classes
  float* scaled_weight;   ///< [columns]
  float* divisor;         ///< [1]
  const float* losses;    ///< [rows]
  const float* z_losses;  ///< [rows], or null
  void* loss;             ///< [1]
  void* z_loss;           ///< [1], or null
  long long ignore_index;
};

}  // namespace ce
