// Variant `strided`: the elements of a row are not contiguous, but neighbouring rows are.
//
// Tensors of shape (N, C, d1, ...), class dimension not the last: 32 neighbouring rows lie side by side.
// Every lane of a warp takes a row, so that a warp reads one stretch of memory for each class; the `warps`
// warps of a block share the classes of the same 32 rows and merge their statistics in shared memory.
//
//     warp 0:  class 0, W, 2 W, ...  of rows 0 .. 31          warp 1:  class 1, W + 1, ...  of the same rows
//
// Reads twice, the second time from L2 where the classes of 32 rows fit. Works for any strides; fast where
// neighbouring rows are neighbours in memory.
//
// axis warps = 1 2 4 8 16
// axis tile = 4 8
// axis load = ca cg
// axis store = wb cg cs
#pragma once
#include "row/tile.cuh"

namespace ce {

struct Shared {
  Operation::Stats warp_stats[config::warps][lanes];
};

/// Classes begin, begin + warps, ... of one row.
struct Classes {
  static constexpr int count = config::tile, vec = 1;
  static constexpr bool is_plain = false;
  int begin;
  Elements<problem::Element, 1> elements[config::tile];

  CE_DEVICE Classes(const Row<problem::Element>& row, int first, float padding) : begin(first) {
#pragma unroll
    for (int i = 0; i < config::tile; ++i)
      elements[i] = inside(i) ? row.template read_element<config::load>(column_of(i))
                              : Elements<problem::Element, 1>::filled(padding);
  }
  CE_DEVICE bool full() const { return inside(count - 1); }
  CE_DEVICE bool holds(int column) const {
    const int distance = column - begin;
    return distance >= 0 && distance < count * config::warps && distance % config::warps == 0;
  }
  CE_DEVICE void replace(int column, float value) {
#pragma unroll
    for (int i = 0; i < config::tile; ++i)
      elements[i].of_input[0] = elements[i].of_input[0].with(column_of(i) == column ? 0 : -1, value);
  }
  CE_DEVICE bool inside(int i) const { return column_of(i) < problem::columns; }
  CE_DEVICE int column_of(int i) const { return begin + i * config::warps; }
};

/// Corrects the output of the target, after the others of the row, by the thread that wrote it.
template <class RowOperation>
CE_DEVICE void correct_class(const RowOperation& operation, const Row<problem::Element>& row) {
  if constexpr (RowOperation::has_target)
    if (operation.target_column() >= 0 && operation.target_column() % config::warps == warp_index())
      row.template write_element<config::store>(operation.target_column(), operation.target_output());
}

}  // namespace ce

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  static_assert(sizeof(Shared) <= config::shared_bytes);
  constexpr int step = config::tile * config::warps;
  // Rows beyond the last one read the last one and write nothing.
  const int64 asked = block_index() * lanes + lane_index();
  const bool exists = asked < arguments.rows;
  const int64 index = exists ? asked : arguments.rows - 1;
  const Row<problem::Element> row(arguments, index);
  Operation operation(arguments, index, exists && warp_index() == 0);
  float value = 0.f;
  const bool constant = operation.constant(value);
  operation.prepare();
  operation.set_target(operation.target_logit(row));

  Operation::Stats stats;
  if constexpr (Operation::reduces) {
    // Sums in groups: a thread may see 100,000 classes, and a running sum of so many terms would round too much.
    constexpr int group = 16 * step;
#pragma unroll 1
    for (int first = warp_index(); first < problem::columns; first += group) {
      Operation::Stats of_group;
      const int end = problem::columns - first > group ? first + group : problem::columns;
#pragma unroll 1
      for (int begin = first; begin < end; begin += step) {
        Classes classes(row, begin, operation.padding());
        extend(operation, of_group, classes);
      }
      stats.merge(of_group, operation.exponent_factor());
    }
    Shared& shared = shared_memory<Shared>();
    shared.warp_stats[warp_index()][lane_index()].assign(stats);
  }
  block_barrier();  // after every thread has read its target's logit
  if constexpr (Operation::reduces) {
    stats = {};
#pragma unroll 1
    for (int warp = 0; warp < config::warps; ++warp)
      stats.merge(shared_memory<Shared>().warp_stats[warp][lane_index()], operation.exponent_factor());
  }
  operation.finalize(stats);
  operation.store_row_results();
  if constexpr (Operation::has_output) {
#pragma unroll 1
    for (int begin = warp_index(); begin < problem::columns; begin += step) {
      Classes classes(row, begin, operation.padding());
      cap(operation, classes);
#pragma unroll
      for (int i = 0; i < config::tile; ++i)
        if (classes.inside(i) && exists)
          row.template write_element<config::store>(
              classes.column_of(i),
              constant ? Vector<problem::Element, 1>::filled(value)
                       : operation.template apply<false>(classes.elements[i], classes.column_of(i)));
    }
    if (exists && !constant) correct_class(operation, row);
  }
}
