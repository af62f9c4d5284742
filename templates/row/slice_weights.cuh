// The weights of the classes of a block's slice in shared memory: reading them from L2 for each row would take more
// bytes than the logits.
#pragma once
#include "row/operation.cuh"

namespace ce {

template <class Partition, int cluster, class Operation>
struct SliceWeights<Partition, cluster, Operation, true> {
  using Weight = typename Operation::Weight;
  using ClassWeights = typename Operation::ClassWeights;
  static constexpr long long bytes = Partition::shape.weight_bytes(cluster, sizeof(Weight));
  static constexpr int vec = Partition::elements, columns = bytes / int(sizeof(Weight));
  static constexpr int slice_columns = Partition::shape.slice_vectors(cluster) * vec;
  static constexpr int before = Partition::exact ? 0 : Partition::line * vec;  // where a row may start
  static constexpr int piece = ClassWeights::piece, pieces = vec / piece;
  static constexpr int plane = pieces > 1 ? columns / pieces : 0;
  alignas(16) Weight of[columns];

  /// Planes of the first, the second, ... pieces of all vectors: neighbouring lanes read neighbouring pieces, which use
  /// all banks.
  CE_DEVICE static int index_of(int i) {
    if constexpr (plane == 0) return i;
    return i % vec / piece * plane + i / vec * piece + i % piece;
  }
  CE_DEVICE static int origin(int rank) { return rank * slice_columns - before; }
  /// Loads the weights. By all threads, before a block barrier.
  CE_DEVICE void load(const Arguments& arguments, int rank) {
    const Weight* first = ClassWeights::in_memory(arguments).first;
#pragma unroll 8
    for (int i = thread_index(); i < columns; i += lanes * config::warps) {
      const int column = origin(rank) + i;
      if (column >= 0 && column < problem::columns) of[index_of(i)] = first[column];
    }
  }
  /// Makes the operation read columns of the slice from here; weights of edges may be elsewhere.
  CE_DEVICE void attach(Operation& operation, int rank) const {
    operation.weights = {of, origin(rank), plane};
  }
  CE_DEVICE static void detach(Operation& operation) {
    operation.weights = ClassWeights::in_memory(operation.arguments);
  }
};

}  // namespace ce
