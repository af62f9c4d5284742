// The single parameter of the kernels around the products of LinearCrossEntropy. Members that a kernel does not use
// stay null.
#pragma once

namespace ce {

struct LinearArguments {
  const void* input;
  void* output;
  long long rows;         ///< rows; or elements, if there are no rows
  long long columns;      ///< or classes
  long long stride;       ///< elements from one row of the input to the next
  long long accumulates;  ///< 1: adds to the output

  const void* target;     ///< [rows]
  const void* weight;     ///< [columns]: weights of the classes
  float* scaled_weight;   ///< [columns]
  float* divisor;         ///< [1]
  const float* losses;    ///< [rows]
  const float* z_losses;  ///< [rows], or null
  void* loss;             ///< [1]
  void* z_loss;           ///< [1], or null
  long long ignore_index;

  // Members for products with only some tokens, each of which has a number.
  long long* places;         ///< position of the token with each number
  long long* numbers;        ///< [tokens]: number of each token, or -1
  long long* counted;        ///< [1]: tokens that count, or null
  long long limit;           ///< largest number of tokens with a number
  long long tokens;          ///< number of all tokens
  long long first;           ///< number of the first row
  long long fill;            ///< bits for rows without a token, and for tokens without a number
  long long fill_of_excess;  ///< bits for all tokens, if more than `limit` count
  long long output_stride;   ///< elements from one row of the output to the next
};

}  // namespace ce
