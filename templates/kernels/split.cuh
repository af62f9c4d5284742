// Variant `split`: few rows, each over many blocks.
//
// With fewer rows than multiprocessors one block a row leaves most of the GPU idle. Here `split` blocks share
// a row, in two launches: ce_part leaves the part of each block in memory, ce_row joins the parts of its row
// and writes its piece. The second launch starts while the first one runs (sm_90) and finds the row in L2.
//
//     ce_part:  | piece 0 | piece 1 | ... |  ->  parts [rows, split]
//     ce_row:   parts of the row -> statistics; piece from L2 -> outputs
//
// Moves 1 read + 1 write through the memory as long as L2 holds the rows. Bound by the latency of two
// launches.
//
// axis warps = 4 8 16
// axis vec = 1 2 4 8
// axis split = 2 4 8 16 32 64 128
// axis load = ca cg
// axis store = wb cg
#pragma once
#include "row/tile.cuh"

namespace ce {

using RowCut = Cut<problem::Element, problem::columns, config::vec, problem::aligned>;

constexpr int threads = lanes * config::warps;
constexpr int unroll = 4;
constexpr int step = unroll * threads;  // vectors
constexpr int piece_vectors = ((RowCut::most_vectors + config::split - 1) / config::split + 7) / 8 * 8;

struct Shared {
  Operation::Part parts[config::warps];
};

/// What a block of the first launch leaves for the second.
struct Piece {
  Operation::Part part;
  problem::Element target_logit;  // read before anybody writes over it
};
static_assert(sizeof(Piece) <= split_part_bytes);

CE_DEVICE Piece& piece_of(const Arguments& arguments, int64 block) {
  return *reinterpret_cast<Piece*>(static_cast<char*>(arguments.parts) + block * split_part_bytes);
}

using PieceTile = Tile<problem::Element, RowCut, unroll, threads, false>;

/// Visits the tiles of this block's piece of the row.
template <class Visit>
CE_DEVICE void over_piece(const Row<problem::Element>& row, const RowCut& cut, int begin, int end,
                          float padding, const Visit& visit) {
#pragma unroll 1
  for (int at = begin; at < end; at += step) {
    PieceTile tile(cut, at, end, thread_index());
    tile.fill(padding, [&](int v) { return row.template read<config::load, config::vec>(cut.column_of(v)); });
    visit(tile);
  }
}

}  // namespace ce

CE_KERNEL(ce_part, 32 * ce::config::warps) {
  using namespace ce;
  step_release();
  static_assert(sizeof(Shared) <= config::shared_bytes);
  const int64 index = block_index() / config::split;
  const int rank = int(block_index() % config::split), begin = rank * piece_vectors;
  const Row<problem::Element> row(arguments, index);
  const RowCut cut(row.in[0]);
  const int end = begin + piece_vectors < cut.end ? begin + piece_vectors : cut.end;
  Operation operation(arguments, index, false);
  Edge<problem::Element> edge{rank == 0 ? cut.edge_column(thread_index()) : -1};
  edge.template read<config::load>(row, operation.padding());
  float value;
  operation.constant(value);

  Operation::Part part;
  if constexpr (Operation::Part::exponentials || Operation::Part::dots) {
    if constexpr (!RowCut::whole) extend(operation, part, edge);
    over_piece(row, cut, begin, end, operation.padding(),
               [&](PieceTile& tile) { extend(operation, part, tile); });
    part = block_join(part, shared_memory<Shared>().parts, operation.factor());
  }
  step_wait();  // no kernel of a call ends before those that started earlier
  if (thread_index() == 0) {
    Piece& piece = piece_of(arguments, block_index());
    piece.part.assign(part);
    piece.target_logit = operation.target_logit(row);
  }
}

CE_KERNEL(ce_row, 32 * ce::config::warps) {
  using namespace ce;
  using Element = problem::Element;
  const int64 index = block_index() / config::split;
  const int rank = int(block_index() % config::split), begin = rank * piece_vectors;
  const Row<Element> row(arguments, index);
  const RowCut cut(row.in[0]);
  const int end = begin + piece_vectors < cut.end ? begin + piece_vectors : cut.end;
  Operation operation(arguments, index, rank == 0 && thread_index() == 0);
  Edge<Element> edge{rank == 0 ? cut.edge_column(thread_index()) : -1};
  step_wait();
  if (float value; operation.constant(value)) {
    operation.record();
    if constexpr (Operation::has_output)
      fill_row<config::store, threads>(row, cut, begin, end, thread_index(), edge.column, value);
    return;
  }
  if (!Operation::has_output && rank > 0) return;

  edge.template read<config::load>(row, operation.padding());
  Operation::Part part;
#pragma unroll
  for (int i = 0; i < (config::split + lanes - 1) / lanes; ++i) {
    const int other = i * lanes + lane_index();
    if (other < config::split)
      part.join(piece_of(arguments, index * config::split + other).part, operation.factor());
  }
  operation.prepare();
  operation.set_target(piece_of(arguments, index * config::split).target_logit);
  operation.settle(warp_join(part, operation.factor()));
  operation.record();
  if constexpr (Operation::has_output) {
    over_piece(row, cut, begin, end, operation.padding(), [&](PieceTile& tile) {
      cap(operation, tile);
      write_outputs<config::store>(operation, row, tile);
    });
    cap(operation, edge);
    write_edge<config::store>(operation, row, edge);
    correct_target<config::store, threads>(operation, row, cut, begin, end, thread_index(), edge);
  }
}
