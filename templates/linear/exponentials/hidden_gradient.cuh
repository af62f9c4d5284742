// The gradient of hidden states, from exponentials x weight in f32: multiplied by the row's factor, plus the target's
// contribution. Each block processes a row.
//
// Moves 2 reads + 1 write of [rows, columns], one of the reads in f32.
#pragma once
#include "linear/exponentials/rows.cuh"

namespace ce {

struct HiddenGradient {
  const float* product;
  const problem::Input* weight;  ///< row of the target; null if the token does not count
  problem::Input* gradient;
  float of_row, of_target;

  template <int n>
  CE_DEVICE void at(int64 column) const {
    Columns<n> columns{};
    if (weight == nullptr) {
      // An ignored row has no gradient, whatever the weight holds; a row whose target is no class has NaN.
#pragma unroll
      for (float& x : columns.x) x = of_row;
    } else {
      const auto w = Columns<n>::read(weight, column);
      columns = Columns<n>::read(product, column);
#pragma unroll
      for (int i = 0; i < n; ++i) columns.x[i] = multiply_add(of_row, columns.x[i], of_target * w.x[i]);
    }
    columns.write(gradient, column);
  }
};

}  // namespace ce

CE_KERNEL(ce_linear_hidden_gradient, ce::problem::threads) {
  using namespace ce;
  const int64 row = block_index(), index = class_of(arguments, row);
  const HiddenGradient body{
      arguments.product + row * arguments.columns,
      index < arguments.call.classes ? weight_of_class(arguments, index) : nullptr,
      static_cast<problem::Input*>(arguments.hidden_grad) + row * arguments.hidden_grad_stride,
      arguments.row_factor[row], arguments.target_factor[row]};
  const uint64 addresses = reinterpret_cast<uint64>(body.gradient) | reinterpret_cast<uint64>(body.product);
  each_column<problem::threads>(arguments.columns, thread_index(), addresses % 16 == 0, body);
}
