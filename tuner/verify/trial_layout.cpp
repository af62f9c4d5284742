#include "tuner/verify/trial_layout.hpp"

#include <algorithm>

#include "generator/ceil_div.hpp"

namespace ce::generator {
namespace {

/// Contiguous rows. \param gap  elements behind each row and, if there are any, behind each batch
Placement of_rows(const Problem& problem, bool shifted, std::int64_t batch_rows, std::int64_t gap) {
  const int size = size_of(problem.dtype);
  const std::int64_t per_boundary = 16 / size;
  const std::int64_t row = ceil_div(problem.columns, per_boundary) * per_boundary + gap + (shifted ? 1 : 0);
  Placement placement{.offset = static_cast<std::size_t>(shifted ? size : 0), .layout = {row, 0, 1}};
  std::int64_t elements = problem.rows * row;
  if (problem.batched) {
    // As in logits[:, :-1, :], one row is skipped behind each batch.
    placement.layout.batch = (batch_rows + 1) * row + gap;
    elements = ceil_div(problem.rows, batch_rows) * placement.layout.batch;
  }
  placement.bytes = placement.offset + static_cast<std::size_t>(elements * size);
  return placement;
}

/// \param gap  elements behind the last row
Placement of_dense_rows(const Problem& problem, std::int64_t gap) {
  Placement placement{.layout = {problem.columns, 0, 1}};
  const std::int64_t elements = problem.rows * problem.columns + gap;
  placement.bytes = static_cast<std::size_t>(elements * size_of(problem.dtype));
  return placement;
}

/// [batches, columns, batch_rows], or [columns, rows] without batches.
Placement of_columns(const Problem& problem, std::int64_t batch_rows, std::int64_t gap) {
  Placement placement{.layout = {1, 0, (problem.batched ? batch_rows : problem.rows) + gap}};
  std::int64_t elements = problem.columns * placement.layout.column;
  if (problem.batched) {
    placement.layout.batch = elements + gap;
    elements = ceil_div(problem.rows, batch_rows) * placement.layout.batch;
  }
  placement.bytes = static_cast<std::size_t>(elements * size_of(problem.dtype));
  return placement;
}

/// For timing: a few large batches.
std::int64_t tight_batch(const Problem& problem) {
  return problem.strided ? std::min<std::int64_t>(problem.rows, 4096)
                         : std::max<std::int64_t>(ceil_div(problem.rows, 4), 1);
}

}  // namespace

Placements placements(const Problem& problem, bool padded) {
  Placements placed;
  placed.batch_rows = !problem.batched ? 0 : padded ? 3 : tight_batch(problem);
  const std::int64_t gap = !padded ? 0 : problem.strided ? 1 : 16 / size_of(problem.dtype);
  // In the class `element` the matrices must not all have the same alignment: the input differs.
  const auto lay_out = [&](bool shifted, std::int64_t gaps) {
    return problem.strided                         ? of_columns(problem, placed.batch_rows, gaps * gap)
           : problem.alignment == Alignment::dense ? of_dense_rows(problem, gaps * gap)
                                                   : of_rows(problem, shifted, placed.batch_rows, gaps * gap);
  };
  placed.input = lay_out(problem.alignment != Alignment::vector, 1);
  placed.second = lay_out(problem.alignment == Alignment::shifted, 2);
  placed.output = problem.in_place ? placed.input : lay_out(problem.alignment == Alignment::shifted, 3);
  return placed;
}

}  // namespace ce::generator
