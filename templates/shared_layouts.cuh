// The layout of rows in the shared memory of the variants without a ring.
#pragma once
#include "row/layout.cuh"

namespace ce {

/// How a warp of the variant `packed` moves contiguous rows.
struct PackedShape {
  int columns, element_bytes;
  int rows;  ///< rows of a lane
  int inputs;

  CE_HOST_DEVICE constexpr int lane_bytes() const { return rows * columns * element_bytes; }
  CE_HOST_DEVICE constexpr int warp_bytes() const { return 32 * lane_bytes(); }
  /// Bytes of the widest access, 16 at most, that divides the size of a lane's rows. If the quotient is odd and the
  /// access has at least 4 bytes, lanes that read theirs from shared memory together have no bank conflicts.
  CE_HOST_DEVICE constexpr int access() const {
    const int widest = lane_bytes() & -lane_bytes();
    return widest < 16 ? widest : 16;
  }
  /// A lane moves its rows itself.
  CE_HOST_DEVICE constexpr bool is_one_access() const { return access() == lane_bytes(); }
  /// Shared memory of a block.
  CE_HOST_DEVICE constexpr long long shared_bytes(int warps) const {
    return is_one_access() ? 0 : static_cast<long long>(warps) * inputs * warp_bytes();
  }
};

/// The layout of a warp's rows in shared memory, in the variant `transpose`.
struct TransposeShape {
  int vectors;  ///< vectors of a row, 16 bytes each
  int lanes;    ///< lanes that share a row
  int inputs;

  /// Number of rows of a warp.
  CE_HOST_DEVICE constexpr int rows() const { return 32 / lanes; }
  /// Vectors from one row to the next: an odd multiple of `lanes`, so that eight lanes, which read together, have no
  /// bank conflicts.
  CE_HOST_DEVICE constexpr int pitch() const { return ceil_of(vectors, lanes) / 2 * 2 * lanes + lanes; }
  /// Shared memory of a block.
  CE_HOST_DEVICE constexpr long long shared_bytes(int warps) const {
    return 16ll * warps * inputs * rows() * pitch();
  }
};

/// The shared memory of a block of the variant `cluster`.
struct ClusterLayout {
  int inputs, slice_vectors, chunk_vectors, warps, cluster;
  int bytes_of_stats;    ///< StatsMembers::bytes()
  int bytes_of_message;  ///< message_bytes()

  CE_HOST_DEVICE constexpr int chunks() const { return ceil_of(slice_vectors, chunk_vectors); }
  CE_HOST_DEVICE constexpr long long bytes() const {
    return 16ll * slice_vectors * inputs +
           align_16(8ll * chunks() + static_cast<long long>(bytes_of_stats) * warps) +
           static_cast<long long>(bytes_of_message) * cluster + 16;
  }
};

}  // namespace ce
