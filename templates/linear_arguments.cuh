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

  // Where some tokens alone are in the products, those with a number.
  long long* places;        ///< of each number its token
  long long* numbers;       ///< [tokens]: of each token its number, or -1
  long long* counted;       ///< [1]: tokens that count, or null
  long long limit;          ///< how many may have a number
  long long tokens;         ///< all of them
  long long first;          ///< number of the first row
  long long fill;           ///< bits of what rows without a token, and tokens without a number, are given
  long long output_stride;  ///< as stride, of the output
};

}  // namespace ce
