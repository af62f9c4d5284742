// A product in plain loops, on the host device: every thread makes the sums that it would have on a GPU. The contract is in
// product.cuh.
#pragma once
#define CE_PRODUCT_KERNEL(name, threads) CE_KERNEL(name, threads)

namespace ce {

template <class Input, int tile_columns, int stages, int cluster>
class Product {
 public:
  static constexpr ProductTile tile{tile_columns, stages, cluster};

  CE_DEVICE explicit Product(const ProductOperands& operands) : operands_(operands) {}
  CE_DEVICE bool loads() const { return thread_index() >= tile.multipliers * tile.warpgroup; }
  CE_DEVICE static void begin_loading() {}
  CE_DEVICE static void begin_multiplying() {}
  CE_DEVICE void end() const {}
  CE_DEVICE void load(int64, int64) {}
  CE_DEVICE void multiply(float (&sums)[tile.sums_of_thread()], int64 first_row, int64 first_column) {
    const int multiplier = thread_index() / tile.warpgroup, thread = thread_index() % tile.warpgroup;
    for (int second = 0; second < 2; ++second)
      for (int i = 0; i < tile.sums_of_row(); ++i)
        sums[tile.place_of(second, i)] = product_of(
            first_row + multiplier * tile.rows_of_multiplier + tile.row_of(thread) + second * tile.second_row,
            first_column + tile.column_of(thread, i));
  }

 private:
  /// 0 outside the matrices, as bulk tensor copies fill in.
  CE_DEVICE float product_of(int64 row, int64 column) const {
    if (row >= operands_.rows || column >= operands_.columns) return 0.f;
    const Input* const a = static_cast<const Input*>(operands_.of_rows) + row * operands_.row_stride;
    const Input* const b = static_cast<const Input*>(operands_.of_columns) + column * operands_.column_stride;
    float sum = 0.f;
    for (int64 k = 0; k < operands_.depth; ++k) sum = multiply_add(to_float(a[k]), to_float(b[k]), sum);
    return sum;
  }

  const ProductOperands& operands_;
};

}  // namespace ce
