// Rows for the kernels of this folder.
#pragma once
#include "device/device.cuh"
#include "kernels/gemm/row_statistics.cuh"
#include "linear_exponentials_arguments.cuh"

using Arguments = ce::LinearExponentialsArguments;

namespace ce {

/// The class of a row; the number of classes if the row has none that counts.
CE_DEVICE int64 class_of(const LinearExponentialsArguments& arguments, int64 row) {
  const int64 target = target_of(arguments.call, row);
  const bool counts = target != arguments.call.ignore_index && target >= 0 && target < arguments.call.classes;
  return counts ? target : arguments.call.classes;
}

CE_DEVICE const problem::Input* hidden_of(const LinearExponentialsArguments& arguments, int64 row) {
  return static_cast<const problem::Input*>(arguments.hidden) + row * arguments.hidden_stride;
}
CE_DEVICE const problem::Input* weight_of_class(const LinearExponentialsArguments& arguments, int64 index) {
  return static_cast<const problem::Input*>(arguments.weight) + index * arguments.weight_stride;
}

/// Neighbouring columns of a row, in f32.
template <int n>
struct Columns {
  float x[n];

  template <class T>
  CE_DEVICE static Columns read(const T* row, int64 column) {
    Columns columns;
    if constexpr (n == 1)
      columns.x[0] = to_float(load_element<Load::ca>(row + column));
    else
      Vector<T, n>::template read<Load::ca>(row + column).values(columns.x);
    return columns;
  }
  template <class T>
  CE_DEVICE void write(T* row, int64 column) const {
    if constexpr (n == 1)
      store_element<Store::wb>(row + column, from_float<T>(x[0]));
    else
      Vector<T, n>::of(x).template write<Store::wb>(row + column);
  }
};

/// Calls body.at<n>(column) for all columns of a row, n neighbours at a time, distributed over `threads` threads.
/// \param aligned  rows are aligned to 16 bytes: four columns are processed together
template <int threads, class Body>
CE_DEVICE void each_column(int64 columns, int thread, bool aligned, Body&& body) {
  const int64 together = aligned ? columns / 4 * 4 : 0;
  for (int64 column = thread * 4; column < together; column += threads * 4) body.template at<4>(column);
  for (int64 column = together + thread; column < columns; column += threads) body.template at<1>(column);
}

}  // namespace ce
