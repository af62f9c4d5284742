// The weights of neighbouring classes.
#pragma once
#include "row/row.cuh"

namespace ce {

/// The weights of the classes from `origin` on, in global or in shared memory; ones if there are no weights.
struct ClassWeights {
  using Weight = problem::Weight;
  /// Number of weights that one instruction reads: if rows start anywhere, so do the weights of a vector.
  static constexpr int piece = problem::aligned ? 16 / sizeof(Weight) : 1;

  const Weight* first;
  int origin = 0;
  /// 0, or the length of a plane: the first pieces of all vectors, then the second ones, ...
  int plane = 0;

  /// The weights of all columns, as the caller gives them: a shard's weights are at its classes.
  CE_DEVICE static ClassWeights in_memory(const Arguments& arguments) {
    return {static_cast<const Weight*>(arguments.weight) + (problem::sharded ? arguments.first_class : 0)};
  }

  /// The weights of neighbouring columns; the first column is a multiple of their number if rows are aligned.
  template <int n>
  CE_DEVICE void at(int column, float (&w)[n]) const {
    if constexpr (!problem::weights) {
#pragma unroll
      for (int k = 0; k < n; ++k) w[k] = 1.f;
    } else if constexpr (problem::aligned && n % piece == 0) {
      // The distance of neighbouring vectors is that of their columns times a constant: no division.
      const int apart = (plane == 0 ? n : piece) * int(sizeof(Weight)) / n;
      const char* here = reinterpret_cast<const char*>(first) + (column - origin) * apart;
#pragma unroll
      for (int i = 0; i < n; i += piece) {
        float part[piece];
        // Copied to registers first; otherwise the words are read one by one.
        const auto read = *reinterpret_cast<const Vector<Weight, piece>*>(
            here + (plane == 0 ? i : plane * (i / piece)) * int(sizeof(Weight)));
        read.values(part);
#pragma unroll
        for (int k = 0; k < piece; ++k) w[i + k] = part[k];
      }
    } else if (plane != 0) {  // single elements: the row's start decides which are in the next vector
      const uint32 offset = column - origin, in_vector = offset % n;
      const Weight *here = first + offset / n + in_vector * plane, *next = here + 1 - n * plane;
#pragma unroll
      for (int k = 0; k < n; ++k) w[k] = to_float((in_vector + k < n ? here : next)[k * plane]);
    } else {
#pragma unroll
      for (int k = 0; k < n; ++k) w[k] = to_float(first[column - origin + k]);
    }
  }
};

}  // namespace ce
