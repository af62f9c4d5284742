// Variant `elementwise`: outputs that need no reduction.
//
// The gradient from a saved logsumexp depends only on its own column: every block loads and stores one tile of one row.
// For losses from given logsumexps, every thread computes one loss.
//
// Moves 1 read + 1 write, like a copy, and is bound by the memory. In 16 bits it comes near the exponential
// unit.
//
// axis warps = 2 4 8
// axis vec = 1 2 4 8
// axis tile = 256 512 1024 2048 4096
// axis load = ca cg evict_last
// axis store = wb cg cs
#pragma once
#include "row/tile.cuh"

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  using Element = problem::Element;
  using Partition = RowPartition<Element, problem::columns, config::vec, problem::aligned>;
  static_assert(!Operation::reduces, "every block sees one tile only");
  constexpr int threads = lanes * config::warps, step = config::tile / config::vec;
  constexpr int tiles = Partition::most_vectors > step ? (Partition::most_vectors + step - 1) / step : 1;

  if constexpr (!Operation::has_output) {
    // Rows beyond the last one read the last one and write nothing.
    const int64 asked = block_index() * threads + thread_index();
    const bool exists = asked < arguments.rows;
    const int64 own = exists ? asked : arguments.rows - 1;
    Operation operation(arguments, own, exists);
    float value = 0.f;
    operation.constant(value);
    operation.prepare();
    operation.set_target(operation.target_logit(Row<Element>(arguments, own)));
    operation.finalize({});
    return operation.store_row_results();
  }
  const int64 index = block_index() / tiles;
  const int begin = int(block_index() % tiles) * step;
  const Row<Element> row(arguments, index);
  const Partition partition(row.in[0]);
  Operation operation(arguments, index, begin == 0 && thread_index() == 0);
  Tile<Element, Partition, step / threads, threads, tiles == 1> tile(partition, begin, partition.end,
                                                                     thread_index());
  tile.fill(operation.padding(),
            [&](int v) { return row.template read<config::load, config::vec>(partition.column_of(v)); });
  Edge<Element> edge{begin == 0 ? partition.edge_column(thread_index()) : -1};
  edge.template read<config::load>(row, operation.padding());

  float value = 0.f;
  const bool constant = operation.constant(value);
  operation.prepare();
  operation.set_target(operation.target_logit(row));
  operation.finalize({});
  cap(operation, tile);
  cap(operation, edge);
  if (constant)
    tile.template write_value<config::store>(row, value);
  else
    write_outputs<config::store>(operation, row, tile);
  write_edge<config::store>(operation, row, edge, constant, value);
  const int end = begin + step < partition.end ? begin + step : partition.end;
  if (!constant)
    correct_target<config::store, threads>(operation, row, partition, begin, end, thread_index(), edge);
}
