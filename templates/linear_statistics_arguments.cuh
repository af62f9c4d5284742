// The one parameter of the kernel of kernels/gemm/statistics.cuh.
#pragma once
#include "arguments.cuh"
#include "product_operands.cuh"

namespace ce {

struct LinearStatisticsArguments {
  ProductOperands operands;  ///< hidden states and weight
  /// The rows' data: target, weight (of the classes), row_scale, scale, cap, rows, classes, statistics_out: as for one
  /// rank of `splits`, whose statistics follow each other, and statistics_words.
  Arguments call;
  const void* bias;  ///< [classes]
  int group;         ///< see ProductSchedule
  int splits;        ///< most_splits() of the schedule

  // For kernels that write exponentials, which also use call.ignore_index.
  const float* reference;  ///< [rows]: a logit u of each row (operations/logits.cuh), at most the largest one
  void* exponentials;      ///< [rows, exponentials_stride], of the operands' dtype
  long long
      exponentials_stride;  ///< elements from one row to the next, a multiple of 8 and no fewer than classes
  int* raised;              ///< [rows]: 1 if a tile is relative to a larger logit; else not written
  float* maxima;            ///< [tiles, rows]: the logits u to which a tile's exponentials are relative
};

}  // namespace ce
