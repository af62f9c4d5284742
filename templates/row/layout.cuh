// The division of rows, and the size of their statistics: arithmetic that kernels and the generator share.
//
// The resulting shared memory of each variant is in ring_layout.cuh and shared_layouts.cuh: a kernel asserts that its
// own has that size, and the generator uses it before compiling anything.
#pragma once

/// A qualifier of functions that both a kernel and the generator call.
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
  bool from_line = true;  ///< vectors are counted from the line in which the row starts

  CE_HOST_DEVICE constexpr int line() const {
    return 128 / (vec * element_bytes);
  }  ///< vectors of a 128-byte line
  /// The row has no prologue and no epilogue.
  CE_HOST_DEVICE constexpr bool whole() const { return aligned && columns % vec == 0; }
  /// All sizes are constants: no vector is counted before the row or behind it.
  CE_HOST_DEVICE constexpr bool exact() const {
    return aligned && columns % (from_line ? vec * line() : vec) == 0;
  }
  /// Number of vectors that are counted, at most.
  CE_HOST_DEVICE constexpr int most_vectors() const {
    return columns / vec + (exact() || !from_line ? 0 : line() - 1);
  }
  /// Vectors of a block's slice of a row in a cluster: whole lines of 16-byte vectors.
  CE_HOST_DEVICE constexpr int slice_vectors(int cluster) const {
    return ceil_of(ceil_of(most_vectors(), cluster), 8) * 8;
  }
  /// Bytes of the class weights of a slice, wherever its row starts.
  CE_HOST_DEVICE constexpr long long weight_bytes(int cluster, int weight_size) const {
    const int beside = exact() ? 0 : line() + 1;
    return (static_cast<long long>(slice_vectors(cluster)) + beside) * vec * weight_size;
  }
};

/// Whether `lanes` lanes that read a row together touch fewer lines if its vectors are counted from a line.
CE_HOST_DEVICE constexpr bool counts_from_line(int lanes, int vec, int element_bytes) {
  return lanes * vec * element_bytes > 128;
}

/// The members of SoftmaxStats (stats.cuh) that an operation uses.
struct StatsMembers {
  bool exponentials;  ///< maximum and sum of exponentials
  bool dots;          ///< a weighted sum; with exponentials also the sum of the weights
  bool indices;       ///< the largest logit and its column
  bool moment;        ///< with exponentials: the sum of exponential x exponent

  /// Number of 32-bit words of these members; sums of f32 rows have a second word each.
  CE_HOST_DEVICE constexpr int words(bool is_narrow) const {
    const int sum = is_narrow ? 1 : 2;
    return (exponentials ? 2 : 0) + (dots ? sum : 0) + (exponentials && dots ? sum : 0) + (indices ? 2 : 0) +
           (moment ? 1 : 0);
  }
  /// Bytes of a SoftmaxStats with all members except the moment.
  CE_HOST_DEVICE constexpr int bytes(bool is_narrow) const {
    return (is_narrow ? 24 : 32) + (moment ? 4 : 0);
  }
};
CE_HOST_DEVICE constexpr StatsMembers softmax_stats() { return {true, false, false, false}; }
CE_HOST_DEVICE constexpr StatsMembers softmax_backward_stats() { return {false, true, false, false}; }
/// \param forward        logsumexp is computed, not read
/// \param probabilities  targets are probabilities
/// \param indices        argmax or hit is written
/// \param entropy        the entropy is written, or has a gradient
CE_HOST_DEVICE constexpr StatsMembers cross_entropy_stats(bool forward, bool probabilities, bool smoothing,
                                                          bool weights, bool indices, bool entropy) {
  return {forward, probabilities || (smoothing && (forward || weights)), indices, forward && entropy};
}

/// Number of 32-bit words that ranks exchange for a row of a shard (shard.cuh).
/// \param has_target  targets are class indices
CE_HOST_DEVICE constexpr int shard_words(const StatsMembers& stats, bool is_narrow, bool has_target,
                                         bool softcap) {
  return stats.words(is_narrow) + (has_target ? 1 + (softcap ? 1 : 0) : 0);
}

/// Bytes of a Message (message.cuh) about a row.
CE_HOST_DEVICE constexpr int message_bytes(int stats_words, bool has_target, bool has_marks) {
  return ceil_of(stats_words + (has_target ? 1 : 0) + (has_marks ? 1 : 0), 4) * 16;
}

}  // namespace ce
