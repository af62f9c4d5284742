// The reductions `mean` and `sum` with a gradient over few rows (problem::fuses_sums), inside of the kernel of the
// rows, since one or two further launches (loss_sum.cuh) would take longer.
//
//     count_all_rows  each warp that needs the number of counted rows reads all targets, a few in each lane
//     sum_losses      the warp that stores the loss of the last row adds up all, while others still write outputs
//
// A loss without gradient cannot hide the second step: a separate launch that waits for the rows is faster.
//
// Sums have a fixed order in any warp: the same bits each run.
#pragma once
#include "operations/reduction.cuh"

namespace ce {

/// The sum of visit(row) over all rows, for every lane; all 32 lanes take part, and all loads are in flight at once.
template <class T, class Visit>
CE_DEVICE T over_all_rows(const Arguments& arguments, const Visit& visit) {
  T sum = 0;
#pragma unroll
  for (int i = 0; i < most_fused_rows / lanes; ++i) {
    const int64 row = i * lanes + lane_index();
    if (row < arguments.rows) sum += visit(row);
  }
  return warp_sum(sum);
}

/// By all 32 lanes.
CE_DEVICE Counted count_all_rows(const Arguments& arguments) {
  Counted counted{over_all_rows<int>(arguments, [&](int64 row) { return int(is_counted(arguments, row)); })};
  if constexpr (weighted_mean)
    counted.weight =
        over_all_rows<float>(arguments, [&](int64 row) { return counted_weight(arguments, row); });
  return counted;
}

/// Adds up the losses of all rows when the last one is stored. By all 32 lanes.
/// \param left  whether this lane has just stored the losses of a row in the workspace
CE_DEVICE void sum_losses(const Arguments& arguments, bool left) {
  Workspace& workspace = *arguments.workspace;
  bool is_last = false;
  if (left) {
    device_fence();
    is_last = atomic_add(&workspace.finished, 1) == arguments.rows - 1;
  }
  if (!any_lane(is_last)) return;
  device_fence();
  const auto sum_of = [&](const float* losses) {
    return over_all_rows<float>(arguments, [&](int64 row) { return load_element<Load::cg>(losses + row); });
  };
  const float loss = sum_of(workspace.losses);
  const float z_loss = problem::z_loss ? sum_of(workspace.losses + arguments.rows) : 0.f;
  const Counted counted = counts_rows ? count_all_rows(arguments) : Counted{};
  if (is_last) put_sums(arguments, loss, z_loss, counted);
}

template <>
struct SumsOf<true> {
  CE_DEVICE static Counted counted(const Arguments& arguments) { return count_all_rows(arguments); }
  CE_DEVICE static void add(const Arguments& arguments, bool left) { sum_losses(arguments, left); }
};

}  // namespace ce
