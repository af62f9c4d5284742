// The one parameter of the kernel of kernels/gemm/statistics.cuh.
#pragma once
#include "arguments.cuh"
#include "product_operands.cuh"

namespace ce {

struct LinearStatisticsArguments {
  ProductOperands operands;  ///< hidden states and weight
  /// Of the rows: target, weight (of the classes), row_scale, scale, cap, rows, classes, statistics_out: as of one rank of
  /// `splits`, whose statistics lie one after the other, and statistics_words.
  Arguments call;
  const void* bias;  ///< [classes]
  int group;         ///< ProductSchedule
  int splits;        ///< most_splits() of it
};

}  // namespace ce
