// The operands of a product inside of a kernel.
#pragma once
#include "device/tensor_map.cuh"

namespace ce {

struct ProductOperands {
  TensorMap rows_map, columns_map;  ///< descriptions of both matrices, for bulk tensor copies
  const void* of_rows;              ///< [rows, depth]
  const void* of_columns;           ///< [columns, depth]
  long long rows, columns, depth;
  long long row_stride, column_stride;  ///< elements from one row of each matrix to the next
};

}  // namespace ce
