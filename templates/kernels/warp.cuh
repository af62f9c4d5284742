// Variant `warp`: narrow rows, several of them in one warp.
//
// `lanes` lanes of a warp share a row and hold it in registers; each group of lanes takes `rows` rows at
// once, so that enough bytes are in flight where a row is a few hundred bytes. Nothing is shared beyond the
// warp: no barrier.
//
//     | lanes 0 .. 7: rows 0 and 1 | lanes 8 .. 15: rows 2 and 3 | ...
//
// Moves 1 read + 1 write. Bound by the memory, and by the latency of whatever a row has once (targets,
// losses).
//
// axis warps = 2 4
// axis vec = 1 2 4 8
// axis lanes = 1 2 4 8 16 32
// axis rows = 1 2
// axis load = ca cs evict_last
// axis store = wb cg cs
#pragma once
#include "row/tile.cuh"

namespace ce {

constexpr bool from_line = counts_from_line(config::lanes, config::vec, sizeof(problem::Element));
using Partition = RowPartition<problem::Element, problem::columns, config::vec, problem::aligned, from_line>;

constexpr int per_lane = (Partition::most_vectors + config::lanes - 1) / config::lanes;

/// This lane's part of one row.
struct OwnRow {
  using Element = problem::Element;
  const bool exists;
  const int lane;
  const int64 index;
  const Row<Element> row;
  const Partition partition;
  Operation operation;
  Tile<Element, Partition, per_lane, config::lanes, true> tile;
  Edge<Element> edge;
  Operation::Stats stats;
  bool constant = false;
  float value = 0.f;

  /// Rows beyond the last one read the last one and write nothing.
  CE_DEVICE OwnRow(const Arguments& arguments, int64 asked, int own_lane)
      : exists(asked < arguments.rows),
        lane(own_lane),
        index(exists ? asked : arguments.rows - 1),
        row(arguments, index),
        partition(row.in[0]),
        operation(arguments, index, exists && lane == 0),
        tile(partition, 0, partition.end, lane),
        edge{partition.edge_column(lane)} {
    tile.fill(operation.padding(),
              [&](int v) { return row.template read<config::load, config::vec>(partition.column_of(v)); });
    edge.template read<config::load>(row, operation.padding());
  }
  CE_DEVICE void reduce() {
    constant = operation.constant(value);
    operation.prepare();
    operation.set_target(operation.target_logit(row));
    if constexpr (Operation::reduces) {
      rescale_to(operation, stats, tile);
      if constexpr (!Partition::whole) rescale_to(operation, stats, edge);
      rescale_warp<config::lanes>(stats, operation.exponent_factor());
    }
    if constexpr (Operation::reduces) {
      operation.add(stats, tile);
      if constexpr (!Partition::whole) operation.add(stats, edge);
      stats = warp_merge<config::lanes, true>(stats, operation.exponent_factor());
    } else {
      cap(operation, tile);
      cap(operation, edge);
    }
    operation.finalize(stats);
    operation.store_row_results();
  }
  CE_DEVICE void write() const {
    if (!exists) return;
    if (constant)
      tile.template write_value<config::store>(row, value);
    else
      write_outputs<config::store>(operation, row, tile);
    write_edge<config::store>(operation, row, edge, constant, value);
    if (!constant)
      correct_target<config::store, config::lanes>(operation, row, partition, 0, partition.end, lane, edge);
  }
};

/// The rows of a lane, constructed one by one since a row cannot be assigned.
template <int r>
struct OwnRows {
  OwnRows<r - 1> before;
  OwnRow last;
  CE_DEVICE OwnRows(const Arguments& arguments, int64 first, int lane)
      : before(arguments, first, lane), last(arguments, first + r - 1, lane) {}
  CE_DEVICE void reduce() {
    before.reduce();
    last.reduce();
  }
  CE_DEVICE void write() const {
    before.write();
    last.write();
  }
};
template <>
struct OwnRows<0> {
  CE_DEVICE OwnRows(const Arguments&, int64, int) {}
  CE_DEVICE void reduce() {}
  CE_DEVICE void write() const {}
};

}  // namespace ce

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  constexpr int groups = lanes * config::warps / config::lanes;
  const int64 group = block_index() * groups + thread_index() / config::lanes;
  OwnRows<config::rows> rows(arguments, group * config::rows, thread_index() % config::lanes);
  rows.reduce();
  if constexpr (Operation::has_output) {
    warp_barrier();  // after every lane has read its target's logit
    rows.write();
  }
}
