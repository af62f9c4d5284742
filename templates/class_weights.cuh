// The weights of neighbouring classes.
#pragma once
#include "row.cuh"

namespace ce {

/// The weights of the classes from `origin` on, in global or in shared memory. Ones without weights.
struct ClassWeights {
  using Weight = problem::Weight;
  static constexpr int piece = 16 / sizeof(Weight);
  const Weight* first;
  int origin;

  template <int n>
  CE_DEVICE void at(int column, float (&w)[n]) const {
    if constexpr (!problem::weights) {
#pragma unroll
      for (int k = 0; k < n; ++k) w[k] = 1.f;
    } else {
      const Weight* weight = first + (column - origin);
      if (n % piece == 0 && reinterpret_cast<uint64>(weight) % 16 == 0) return read_pieces(weight, w);
#pragma unroll
      for (int k = 0; k < n; ++k) w[k] = to_float(weight[k]);
    }
  }

 private:
  /// Of two pieces, half of the lanes read the second one first: 8 lanes that are served together then take
  /// from all banks of shared memory.
  template <int n>
  CE_DEVICE static void read_pieces(const Weight* weight, float (&w)[n]) {
    constexpr int pieces = n / piece;
    const bool swapped = pieces == 2 && lane_index() / 4 % 2 == 1;
    float read[pieces > 0 ? pieces : 1][piece];
#pragma unroll
    for (int i = 0; i < pieces; ++i)
      Vector<Weight, piece>{
          *reinterpret_cast<const Words<4>*>(weight + piece * (swapped ? pieces - 1 - i : i))}
          .values(read[i]);
#pragma unroll
    for (int k = 0; k < n; ++k)
      w[k] = swapped ? read[pieces - 1 - k / piece][k % piece] : read[k / piece][k % piece];
  }
};

}  // namespace ce
