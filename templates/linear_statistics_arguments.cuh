// The one parameter of the kernel of kernels/gemm/statistics.cuh.
#pragma once
#include "arguments.cuh"
#include "product_operands.cuh"

namespace ce {

struct LinearStatisticsArguments {
  ProductOperands operands;  ///< hidden states and weight
  /// What the rows have: target, weight (of the classes), row_scale, scale, cap, rows, classes, statistics_out: as of one
  /// rank of `splits`, whose statistics lie one after the other, and statistics_words.
  Arguments call;
  const void* bias;  ///< [classes]
  int group;         ///< ProductSchedule
  int splits;        ///< most_splits() of it

  // Where exponentials are left: also call.ignore_index.
  const float* reference;  ///< [rows]: a logit u of each (operations/logits.cuh), no larger than the largest
  void* exponentials;      ///< [rows, exponentials_stride], of the operands' dtype
  long long
      exponentials_stride;  ///< elements from one row to the next, a multiple of 8 and no fewer than classes
  int* raised;              ///< [rows]: 1 where one is with respect to a larger one; else nothing is written
  float* maxima;  ///< [tiles, rows]: of the logits u, with respect to which a tile's exponentials are
};

}  // namespace ce
