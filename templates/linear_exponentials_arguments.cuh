// The one parameter of the kernels of linear/exponentials/. What a kernel does not use stays null.
#pragma once
#include "arguments.cuh"

namespace ce {

struct LinearExponentialsArguments {
  /// What the rows have: target, upstream, row_weight, lse_upstream, divisor, rows, classes, ignore_index, the amounts of
  /// scale, cap and z-loss, statistics of `ranks` splits, and statistics_words.
  Arguments call;
  long long upstream_step;  ///< from one row's to the next: 0 where all have the same

  const long long* counted;  ///< [1]: tokens that count, or null
  long long limit;           ///< how many of these are in products

  const void* hidden;       ///< [rows, columns]
  const void* weight;       ///< [classes, columns]
  long long columns;        ///< the hidden size
  long long hidden_stride;  ///< elements from one row to the next
  long long weight_stride;  ///< the same
  float* reference;    ///< [rows]: LinearStatisticsArguments; once factors are known the maximum of the row
  void* exponentials;  ///< [rows, classes], of the dtype of hidden
  long long exponentials_stride;
  int* raised;          ///< [rows]: the same
  const float* maxima;  ///< [tiles, rows]: the same
  long long tiles;      ///< of a row
  int tile_columns;
  float* row_factor;     ///< [rows]: of the row's exponentials
  float* target_factor;  ///< [rows]: of the target's logit
  void* scaled_hidden;   ///< [rows, columns]
  long long scaled_stride;
  int* order;  ///< [rows]
  int*
      classes_in_order;  ///< [rows]: of the rows in that order; as many as there are classes where one does not count
  const float* product;  ///< [rows, columns] exponentials x weight
  void* hidden_grad;     ///< [rows, columns]
  long long hidden_grad_stride;
  void* weight_grad;  ///< [classes, columns]
};

}  // namespace ce
