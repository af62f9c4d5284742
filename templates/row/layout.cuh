// How rows are cut, and how they lie in shared memory: arithmetic that kernels and generator share.
//
// A kernel asserts that its shared memory is as large as is said here; the generator asks before anything is compiled.
#pragma once

/// In front of a function that both a kernel and the generator call.
#if defined(__CUDACC__)
#define CE_HOST_DEVICE __host__ __device__
#else
#define CE_HOST_DEVICE
#endif

namespace ce {

CE_HOST_DEVICE constexpr int ceil_of(int count, int size) { return (count + size - 1) / size; }
CE_HOST_DEVICE constexpr long long align_16(long long bytes) { return (bytes + 15) / 16 * 16; }

/// A row in vectors (row.cuh).
struct RowShape {
  int columns, vec, element_bytes;
  bool aligned;           ///< every row of every tensor starts on a vector boundary
  bool from_line = true;  ///< vectors are counted from the line in which the row starts, not from its first

  CE_HOST_DEVICE constexpr int line() const {
    return 128 / (vec * element_bytes);
  }  ///< vectors of a 128-byte line
  /// No prologue and no epilogue.
  CE_HOST_DEVICE constexpr bool whole() const { return aligned && columns % vec == 0; }
  /// All sizes are constants: nothing lies before the first vector that is counted, or behind the last.
  CE_HOST_DEVICE constexpr bool exact() const {
    return aligned && columns % (from_line ? vec * line() : vec) == 0;
  }
  /// Vectors that are counted, at most.
  CE_HOST_DEVICE constexpr int most_vectors() const {
    return columns / vec + (exact() || !from_line ? 0 : line() - 1);
  }
  /// Vectors of the slice of a row that each block of a cluster has: whole lines of 16-byte vectors.
  CE_HOST_DEVICE constexpr int slice_vectors(int cluster) const {
    return ceil_of(ceil_of(most_vectors(), cluster), 8) * 8;
  }
  /// Bytes of the class weights of a slice, wherever its row starts.
  CE_HOST_DEVICE constexpr long long weight_bytes(int cluster, int weight_size) const {
    const int beside = exact() ? 0 : line() + 1;
    return (static_cast<long long>(slice_vectors(cluster)) + beside) * vec * weight_size;
  }
};

/// Whether `lanes` lanes that read a row together touch fewer lines when its vectors are counted from one.
CE_HOST_DEVICE constexpr bool counts_from_line(int lanes, int vec, int element_bytes) {
  return lanes * vec * element_bytes > 128;
}

/// How a warp of the variant `packed` moves rows that follow each other without gaps.
struct PackedShape {
  int columns, element_bytes;
  int rows;  ///< of a lane
  int inputs;

  CE_HOST_DEVICE constexpr int lane_bytes() const { return rows * columns * element_bytes; }
  CE_HOST_DEVICE constexpr int warp_bytes() const { return 32 * lane_bytes(); }
  /// Bytes of the widest access, 16 at most, that the rows of a lane are a multiple of. Where that is an odd multiple and
  /// the access has 4 bytes or more, lanes that read theirs from shared memory together meet in no bank.
  CE_HOST_DEVICE constexpr int access() const {
    const int widest = lane_bytes() & -lane_bytes();
    return widest < 16 ? widest : 16;
  }
  /// A lane moves its rows by itself.
  CE_HOST_DEVICE constexpr bool is_one_access() const { return access() == lane_bytes(); }
  /// Of a block.
  CE_HOST_DEVICE constexpr long long shared_bytes(int warps) const {
    return is_one_access() ? 0 : static_cast<long long>(warps) * inputs * warp_bytes();
  }
};

/// How a warp of the variant `transpose` has rows in shared memory.
struct TransposeShape {
  int vectors;  ///< of a row, 16 bytes each
  int lanes;    ///< that share a row
  int inputs;

  /// Of a warp.
  CE_HOST_DEVICE constexpr int rows() const { return 32 / lanes; }
  /// Vectors from a row to the next: an odd multiple of `lanes`, so that eight lanes, which read together, meet in no bank.
  CE_HOST_DEVICE constexpr int pitch() const { return ceil_of(vectors, lanes) / 2 * 2 * lanes + lanes; }
  /// Of a block.
  CE_HOST_DEVICE constexpr long long shared_bytes(int warps) const {
    return 16ll * warps * inputs * rows() * pitch();
  }
};

/// The members of SoftmaxStats (stats.cuh) that an operation uses.
struct StatsMembers {
  bool exponentials;  ///< maximum and sum of exponentials
  bool dots;          ///< a weighted sum; with exponentials also the sum of the weights
  bool indices;       ///< the largest logit and its column
  bool moment;        ///< with exponentials: the sum of exponential x exponent

  /// 32-bit words of them; sums of f32 rows have a second word each.
  CE_HOST_DEVICE constexpr int words(bool is_narrow) const {
    const int sum = is_narrow ? 1 : 2;
    return (exponentials ? 2 : 0) + (dots ? sum : 0) + (exponentials && dots ? sum : 0) + (indices ? 2 : 0) +
           (moment ? 1 : 0);
  }
  /// Of a SoftmaxStats, which has all of them but the moment.
  CE_HOST_DEVICE constexpr int bytes(bool is_narrow) const {
    return (is_narrow ? 24 : 32) + (moment ? 4 : 0);
  }
};
CE_HOST_DEVICE constexpr StatsMembers softmax_stats() { return {true, false, false, false}; }
CE_HOST_DEVICE constexpr StatsMembers softmax_backward_stats() { return {false, true, false, false}; }
/// \param forward        logsumexp is found, not read
/// \param probabilities  targets are probabilities
/// \param indices        argmax or hit is written
/// \param entropy        it is written, or has a gradient
CE_HOST_DEVICE constexpr StatsMembers cross_entropy_stats(bool forward, bool probabilities, bool smoothing,
                                                          bool weights, bool indices, bool entropy) {
  return {forward, probabilities || (smoothing && (forward || weights)), indices, forward && entropy};
}

/// 32-bit words that ranks exchange about a row of a shard (shard.cuh).
/// \param has_target  targets are class indices
CE_HOST_DEVICE constexpr int shard_words(const StatsMembers& stats, bool is_narrow, bool has_target,
                                         bool softcap) {
  return stats.words(is_narrow) + (has_target ? 1 + (softcap ? 1 : 0) : 0);
}

/// The memory of a rank that others write to, behind a PeerExchange (arguments.cuh).
struct ExchangeLayout {
  long long ranks;
  long long words;  ///< shard_words()

  /// 16 bytes each: so many words, and the number of the call.
  static constexpr int words_of_packet = 3, packet_bytes = 16;

  CE_HOST_DEVICE constexpr int packets_of_row() const { return ceil_of(int(words), words_of_packet); }
  /// [ranks], 64-bit: bytes from this rank's PeerExchange to that of each rank, as this rank sees it.
  CE_HOST_DEVICE static constexpr long long distances() { return 32; }
  /// [ranks], 32-bit: PeerExchange::calls of each rank.
  CE_HOST_DEVICE constexpr long long finished() const { return distances() + 8 * ranks; }
  /// [rows, ranks, packets_of_row()].
  CE_HOST_DEVICE constexpr long long packets() const { return align_16(finished() + 4 * ranks); }
  CE_HOST_DEVICE constexpr long long bytes_of_row() const { return ranks * packets_of_row() * packet_bytes; }
  CE_HOST_DEVICE constexpr long long bytes(long long rows) const { return packets() + rows * bytes_of_row(); }
};

/// Bytes of a Message (message.cuh) about a row.
CE_HOST_DEVICE constexpr int message_bytes(int stats_words, bool has_target, bool has_marks) {
  return ceil_of(stats_words + (has_target ? 1 : 0) + (has_marks ? 1 : 0), 4) * 16;
}

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

/// Who does what in a block of the persistent variants, whose first warp fills the ring (ring.cuh).
struct RingRoles {
  int team_warps;     ///< that reduce
  int readers;        ///< threads that read each stage before it is filled again
  int chunk_vectors;  ///< of a chunk, a multiple of the threads of each team
  int held_chunks;  ///< of a slice whose stages are free again before its statistics are known; all where more than
                    ///< there are
  bool finalizes_apart;  ///< one warp finalizes rows for its block; the ring may be longer than two rows
};
/// As many warps write as reduce.
CE_HOST_DEVICE constexpr RingRoles pipeline_roles(int warps, int chunk_vectors) {
  const int team = (warps - 1) / 2;
  return {team, 2 * 32 * team, chunk_vectors, 0, false};
}
/// The second warp finalizes. Writers hold chunks that they read before they know their row, unless reducers put logits
/// under their cap in the ring first.
CE_HOST_DEVICE constexpr RingRoles pipeline_decoupled_roles(int warps, int reducers, int chunk_vectors,
                                                            int hold, bool caps) {
  const int writers = 32 * (warps - 2 - reducers);
  return {reducers, 32 * reducers + writers, chunk_vectors, caps ? 0 : hold * writers / chunk_vectors, true};
}
/// The warps that reduce hold `hold` vectors a thread in registers, and write.
CE_HOST_DEVICE constexpr RingRoles persistent_roles(int warps, int unroll, int hold) {
  const int readers = 32 * (warps - 1);
  return {warps - 1, readers, unroll * readers, hold / (unroll > 0 ? unroll : 1), false};
}
/// Nothing of a row stays.
CE_HOST_DEVICE constexpr RingRoles persistent_reduce_roles(int warps, int unroll) {
  const int readers = 32 * (warps - 1);
  return {warps - 1, readers, unroll * readers, 0x7fffffff, false};
}

/// Bytes of a row that one warp has finalized for its block, with an mbarrier, at most (pipeline_decoupled.cuh).
CE_HOST_DEVICE constexpr int finalized_bytes(bool entropy_upstream) {
  return (entropy_upstream ? 72 : 64) + 8;
}

/// The shared memory of such a block: `Shared` in ring.cuh.
struct RingLayout {
  RingRoles roles;
  int inputs, slice_vectors, cluster;
  int stages;              ///< of the ring beyond one slice; config::stages
  int bytes_of_message;    ///< message_bytes()
  int bytes_of_finalized;  ///< finalized_bytes(); 0 where no warp finalizes apart
  long long weight_bytes;  ///< RowShape::weight_bytes(), or 0

  CE_HOST_DEVICE constexpr int chunks() const { return ceil_of(slice_vectors, roles.chunk_vectors); }
  CE_HOST_DEVICE constexpr int ring_stages() const {
    return (roles.held_chunks < chunks() ? chunks() - roles.held_chunks : 0) + stages;
  }
  /// A thread that has read the last chunk of row n, in a stage that was used before, has a ring of ring_stages() chunks
  /// behind it, which all readers have read: of row n - rows_ahead() even the chunks that are not read ahead of its
  /// statistics. So the last readers of this block have the messages about that row from all blocks.
  CE_HOST_DEVICE constexpr int rows_ahead() const {
    return roles.finalizes_apart ? (ring_stages() + roles.held_chunks) / chunks() : 1;
  }
  /// No block publishes about row n + message_slots() before it has read what all say of row n + rows_ahead(), and they
  /// had read about row n.
  CE_HOST_DEVICE constexpr int message_slots() const { return 2 * rows_ahead(); }
  /// Rows that a cluster has taken and that not all roles of all blocks have seen. When a loader begins row m, the last
  /// readers of its block have read about row m - 1 - rows_ahead(), and so those of all blocks about row
  /// m - 1 - message_slots(): every role, loaders too, has taken that row from the queue, whose slot is written next.
  CE_HOST_DEVICE constexpr int queue_slots() const { return message_slots() + 2; }
  /// Messages about a row.
  CE_HOST_DEVICE constexpr int messages() const { return cluster * roles.team_warps; }

  CE_HOST_DEVICE constexpr long long bytes() const {
    const long long barriers = 2ll * ring_stages() + message_slots() + queue_slots();
    const long long ring = 16ll * ring_stages() * inputs * roles.chunk_vectors;
    return align_16(static_cast<long long>(message_slots()) * bytes_of_finalized) +
           align_16(ring + 8 * barriers + 8ll * queue_slots()) +
           static_cast<long long>(message_slots()) * messages() * bytes_of_message + align_16(weight_bytes);
  }
};

}  // namespace ce
