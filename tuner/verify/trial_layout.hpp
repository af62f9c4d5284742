#pragma once
/// \file
/// Memory layouts of a trial's matrices.

#include <cstddef>
#include <cstdint>

#include "generator/problem.hpp"
#include "templates/arguments.cuh"

namespace ce::generator {

struct Placement {
  std::size_t offset = 0;  ///< bytes to the first element
  Layout layout{.row = 1, .batch = 0, .column = 1};
  std::size_t bytes = 0;  ///< size of the whole tensor
};

struct Placements {
  Placement input, second, output;
  std::int64_t batch_rows = 0;  ///< 0 if the problem has no batches
};

/// Layouts of the problem's alignment class; the rows of a strided problem are [.., columns, ..], with the class
/// dimension not the last one. \param padded  with gaps behind rows and batches, and all strides different, as far as
/// the class allows; else without gaps
[[nodiscard]] Placements placements(const Problem& problem, bool padded);

}  // namespace ce::generator
