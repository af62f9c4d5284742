// The single parameter of the kernels in linear/exponentials/. Members that a kernel does not use stay null.
#pragma once
#include "arguments.cuh"

namespace ce {

struct LinearExponentialsArguments {
  /// The rows' data: target, upstream, row_weight, lse_upstream, divisor, rows, classes, ignore_index, the amounts of
  /// scale, cap and z-loss, statistics of `ranks` splits, and statistics_words.
  Arguments call;
  long long upstream_step;  ///< elements from a row's upstream gradient to the next: 0 if rows share one

  const long long* counted;  ///< [1]: tokens that count, or null
  long long limit;           ///< largest number of these in products

  const void* hidden;       ///< [rows, columns]
  const void* weight;       ///< [classes, columns]
  long long columns;        ///< the hidden size
  long long hidden_stride;  ///< elements from one row to the next
  long long weight_stride;  ///< the same
  float* reference;         ///< [rows]: as in LinearStatisticsArguments; the maximum with the factors
  void* exponentials;       ///< [rows, classes], of the dtype of hidden
  long long exponentials_stride;
  int* raised;          ///< [rows]: as there
  const float* maxima;  ///< [tiles, rows]: as there
  long long tiles;      ///< tiles of a row
  int tile_columns;
  float* row_factor;     ///< [rows]: of the row's exponentials
  float* target_factor;  ///< [rows]: of the target's logit
  void* scaled_hidden;   ///< [rows, columns]
  long long scaled_stride;
  int* order;             ///< [rows]
  int* classes_in_order;  ///< [rows]: their classes in that order; number of classes if a row does not count
  const float* product;   ///< [rows, columns] exponentials x weight
  void* hidden_grad;      ///< [rows, columns]
  long long hidden_grad_stride;
  void* weight_grad;  ///< [classes, columns]
};

}  // namespace ce
