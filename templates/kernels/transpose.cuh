// Variant `transpose`: losses of narrow rows, a lane or a few for each.
//
// A warp copies its rows into shared memory, neighbouring lanes neighbouring vectors, as fast as memory gives them. There
// each lane reads a row of its own, or a share of one. With 16 vectors in a row and lanes=1:
//
//     copied    | lanes 0 to 15: row 0, vectors 0 to 15 | lanes 16 to 31: row 1, vectors 0 to 15 | then rows 2 and 3, ...
//     reduced   | lane 0: row 0 | lane 1: row 1 | ... | lane 31: row 31
//
// So what a row has once, its target and its loss, costs each lane an instruction for a row of its own, and neighbouring
// lanes read neighbouring targets. Where lanes share a row, all of them run these instructions for it. Were lanes to load
// their own rows from memory, each instruction would touch a line for each row.
//
// Moves 1 read. Bound by the memory. There is no block barrier.
//
// axis warps = 2 4 8
// axis vec = 4 8
// axis lanes = 1 2 4
// axis load = ca cs evict_last
#pragma once
#include "row/tile.cuh"
#include "shared_layouts.cuh"

namespace ce {

using Element = problem::Element;
using Partition = RowPartition<Element, problem::columns, config::vec, problem::aligned, false>;
static_assert(Partition::exact && Partition::whole, "every row is whole vectors");
static_assert(sizeof(Words<4>) == config::vec * sizeof(Element), "of 16 bytes");
static_assert(Operation::reduces && !Operation::has_output, "nothing is written per element");

constexpr TransposeShape shape{Partition::most_vectors, config::lanes, problem::inputs};

/// The rows of a warp.
struct SharedRows {
  Words<4> of_input[problem::inputs][shape.rows()][shape.pitch()];
};

/// Copies the vectors of a warp's rows to shared memory.
struct WarpVectors {
  static constexpr int all = shape.rows() * shape.vectors, count = all / lanes;
  static_assert(all % lanes == 0);
  Words<4> data[problem::inputs][count];

  /// \param visit  gets the index of each vector in this lane, its row among the warp's, and its index there
  template <class Visit>
  CE_DEVICE static void each(const Visit& visit) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int vector = i * lanes + lane_index();
      visit(i, vector / shape.vectors, vector % shape.vectors);
    }
  }
  /// Rows that do not exist are replaced by the last row.
  CE_DEVICE void load_from(const Arguments& arguments, int64 first) {
    const int64 left = arguments.rows - 1 - first;
    const int last = left < shape.rows() ? int(left) : shape.rows() - 1;
    each([&](int i, int own, int place) {
      const Row<Element> row(arguments, first + (own < last ? own : last));
#pragma unroll
      for (int input = 0; input < problem::inputs; ++input)
        data[input][i] = load<config::load, 4>(row.in[input] + place * config::vec);
    });
  }
  CE_DEVICE void write(SharedRows& rows) const {
    each([&](int i, int own, int place) {
#pragma unroll
      for (int input = 0; input < problem::inputs; ++input) rows.of_input[input][own][place] = data[input][i];
    });
  }
};

/// A lane's vectors of its row: lane, lane + lanes, ...
struct LaneTile : Tile<Element, Partition, Partition::most_vectors / config::lanes, config::lanes, true> {
  static_assert(Partition::most_vectors % config::lanes == 0);

  CE_DEVICE explicit LaneTile(int lane) : Tile(Partition(nullptr), 0, Partition::most_vectors, lane) {}
  CE_DEVICE void read(const SharedRows& rows, int own) {
    fill(0.f, [&](int vector) {
      Elements<Element, config::vec> elements;
#pragma unroll
      for (int input = 0; input < problem::inputs; ++input)
        elements.of_input[input] = {rows.of_input[input][own][vector]};
      return elements;
    });
  }
};
/// Overwrites the target's logit in shared memory: one store instead of a test for each word.
struct TileWithoutTarget : LaneTile {
  using LaneTile::LaneTile;
  CE_DEVICE void replace(int, float) {}
};

/// Adds a lane's share of row `own`, which is read twice if its target must not be added.
CE_DEVICE void add_row(const Operation& operation, Operation::Stats& stats, SharedRows& rows, int own,
                       int lane) {
  LaneTile tile(lane);
  tile.read(rows, own);
  rescale_to(operation, stats, tile);
  rescale_warp<config::lanes>(stats, operation.exponent_factor());
  if constexpr (!Operation::replaces_target) {
    operation.add(stats, tile);
  } else {
    if constexpr (config::lanes > 1) warp_barrier();  // after all lanes of the row have read it
    if (const int target = operation.target_column(); lane == 0 && target >= 0)
      reinterpret_cast<Element*>(rows.of_input[0][own])[target] = from_float<Element>(operation.padding());
    warp_barrier();
    TileWithoutTarget others(lane);
    others.read(rows, own);
    operation.add(stats, others);
  }
}

}  // namespace ce

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  static_assert(config::warps * sizeof(SharedRows) == shape.shared_bytes(config::warps));
  const int64 first = (block_index() * config::warps + warp_index()) * shape.rows();
  if (first >= arguments.rows) return;
  WarpVectors vectors;
  vectors.load_from(arguments, first);

  const int own = lane_index() / config::lanes, lane = lane_index() % config::lanes;
  const bool exists = first + own < arguments.rows;
  const int64 index = exists ? first + own : arguments.rows - 1;
  Operation operation(arguments, index, exists && lane == 0);
  float value;
  static_cast<void>(operation.constant(value));  // records a target that is no class
  operation.prepare();

  SharedRows& rows = (&shared_memory<SharedRows>())[warp_index()];
  vectors.write(rows);
  warp_barrier();
  operation.set_target(operation.target_logit(Row<Element>(arguments, index)));
  Operation::Stats stats;
  add_row(operation, stats, rows, own, lane);
  operation.finalize(warp_merge<config::lanes, true>(stats, operation.exponent_factor()));
  operation.store_row_results();
}
