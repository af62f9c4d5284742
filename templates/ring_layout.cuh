// The roles in a block of the variants with a ring (ring.cuh), and the resulting shared memory.
#pragma once
#include "row/layout.cuh"

namespace ce {

/// The roles of warps in a block of a persistent variant, whose first warp fills the ring (ring.cuh).
struct RingRoles {
  int team_warps;     ///< warps that reduce
  int readers;        ///< threads that read each stage before it is filled again
  int chunk_vectors;  ///< vectors of a chunk, a multiple of the threads of each team
  int held_chunks;  ///< chunks of a slice whose stages are free before its statistics are known; all chunks if the
                    ///< slice has fewer
  bool finalizes_apart;  ///< one warp finalizes rows for its block; the ring may be longer than two rows
};
/// The roles of `pipeline`: equally many warps reduce and write.
CE_HOST_DEVICE constexpr RingRoles pipeline_roles(int warps, int chunk_vectors) {
  const int team = (warps - 1) / 2;
  return {team, 2 * 32 * team, chunk_vectors, 0, false};
}
/// The roles of `pipeline_decoupled`: the second warp finalizes. Writers hold chunks that they read before they know
/// their row, unless reducers put logits under their cap in the ring first.
CE_HOST_DEVICE constexpr RingRoles pipeline_decoupled_roles(int warps, int reducers, int chunk_vectors,
                                                            int hold, bool caps) {
  const int writers = 32 * (warps - 2 - reducers);
  return {reducers, 32 * reducers + writers, chunk_vectors, caps ? 0 : hold * writers / chunk_vectors, true};
}
/// The roles of `persistent`: the warps that reduce hold `hold` vectors a thread in registers, and write.
CE_HOST_DEVICE constexpr RingRoles persistent_roles(int warps, int unroll, int hold) {
  const int readers = 32 * (warps - 1);
  return {warps - 1, readers, unroll * readers, hold / (unroll > 0 ? unroll : 1), false};
}
/// The roles of `persistent_reduce`: no part of a row is kept.
CE_HOST_DEVICE constexpr RingRoles persistent_reduce_roles(int warps, int unroll) {
  const int readers = 32 * (warps - 1);
  return {warps - 1, readers, unroll * readers, 0x7fffffff, false};
}

/// Bytes of a row that one warp has finalized for its block, including an mbarrier; an upper bound
/// (pipeline_decoupled.cuh).
CE_HOST_DEVICE constexpr int finalized_bytes(bool entropy_upstream) {
  return (entropy_upstream ? 72 : 64) + 8;
}

/// The shared memory of such a block: `Shared` in ring.cuh.
struct RingLayout {
  RingRoles roles;
  int inputs, slice_vectors, cluster;
  int stages;              ///< stages of the ring beyond one slice (ring_stages() has all); config::stages
  int bytes_of_message;    ///< message_bytes()
  int bytes_of_finalized;  ///< finalized_bytes(); 0 without a finalizing warp
  long long weight_bytes;  ///< RowShape::weight_bytes(), or 0

  CE_HOST_DEVICE constexpr int chunks() const { return ceil_of(slice_vectors, roles.chunk_vectors); }
  CE_HOST_DEVICE constexpr int ring_stages() const {
    return (roles.held_chunks < chunks() ? chunks() - roles.held_chunks : 0) + stages;
  }
  /// A thread that has read the last chunk of row n, in a stage that was used before, knows that all readers have read
  /// the ring_stages() chunks before it: for row n - rows_ahead(), even the chunks that are not read before its
  /// statistics are known. So the last readers of this block have read the messages of all blocks about that row.
  CE_HOST_DEVICE constexpr int rows_ahead() const {
    return roles.finalizes_apart ? (ring_stages() + roles.held_chunks) / chunks() : 1;
  }
  /// No block publishes about row n + message_slots() before it has read the messages of all about row n +
  /// rows_ahead(), and by then all had read those about row n.
  CE_HOST_DEVICE constexpr int message_slots() const { return 2 * rows_ahead(); }
  /// Number of rows that a cluster has taken and that some role of some block has not seen yet. When a loader begins
  /// row m, the last readers of its block have read about row m - 1 - rows_ahead(), so those of all blocks have read
  /// about row m - 1 - message_slots(): every role, including loaders, has taken that row from the queue, whose slot is
  /// written next.
  CE_HOST_DEVICE constexpr int queue_slots() const { return message_slots() + 2; }
  /// Slots for messages about a row.
  CE_HOST_DEVICE constexpr int messages() const { return cluster * roles.team_warps; }

  /// A stage holds one chunk of each input, in vectors of 16 bytes. It has two mbarriers.
  CE_HOST_DEVICE constexpr long long bytes() const {
    const long long barriers = 2ll * ring_stages() + message_slots() + queue_slots();
    const long long ring = 16ll * ring_stages() * inputs * roles.chunk_vectors;
    return align_16(static_cast<long long>(message_slots()) * bytes_of_finalized) +
           align_16(ring + 8 * barriers + 8ll * queue_slots()) +
           static_cast<long long>(message_slots()) * messages() * bytes_of_message + align_16(weight_bytes);
  }
};

}  // namespace ce
