// A product in plain loops for the host device: every thread computes the sums that it would have on a GPU. The
// contract is in product.cuh.
#pragma once
#define CE_PRODUCT_KERNEL(name, threads) CE_KERNEL(name, threads)

namespace ce {

template <class Input, int tile_columns, int stages, int cluster, bool turns>
class Product {
 public:
  static constexpr ProductTile tile{tile_columns, stages, cluster, turns};

  CE_DEVICE explicit Product(const ProductOperands& operands) : operands_(operands) {}
  CE_DEVICE bool loads() const { return thread_index() >= tile.multipliers * tile.warpgroup; }
  CE_DEVICE static void begin_loading() {}
  CE_DEVICE static void begin_multiplying() {}
  CE_DEVICE void end() const {}
  CE_DEVICE void load(int64, int64) {}
  CE_DEVICE bool multiplies(int64 tile_of_block) const {
    return !turns || tile_of_block % tile.multipliers == thread_index() / tile.warpgroup;
  }
  CE_DEVICE void skip() {}
  CE_DEVICE void multiply(float (&sums)[tile.row_blocks()][tile.sums_of_thread()], int64 first_row,
                          int64 first_column) {
    const int thread = thread_index() % tile.warpgroup;
    first_row += thread_index() / tile.warpgroup * tile.rows_apart() + tile.row_of(thread);
    for (int block = 0; block < tile.row_blocks(); ++block)
      for (int second = 0; second < 2; ++second)
        for (int i = 0; i < tile.sums_of_row(); ++i)
          sums[block][tile.place_of(second, i)] =
              product_of(first_row + block * tile.rows_at_once + second * tile.second_row,
                         first_column + tile.column_of(thread, i));
  }

 private:
  /// 0 outside the matrices, as with bulk tensor copies.
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
