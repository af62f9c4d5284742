#pragma once
/// \file
/// Finds slow GPUs in a fleet: compares runs of the same kernels on many GPUs of one model, and gives a ratio for each.
/// docs/measuring.md describes the method.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/analysis/bootstrap.hpp"
#include "cli/analysis/verdict.hpp"

namespace ce::tuner {

/// A GPU whose difference from its fleet is smaller counts as normal.
inline constexpr double least_difference = 0.02;

struct GpuRuns {
  std::string gpu;
  std::vector<Run> runs;
};

/// Runs of one config on one problem with the same software and equal rows, by GPU.
using FleetCell = std::vector<GpuRuns>;

enum class GpuVerdict : std::uint8_t {
  as_the_fleet,  ///< within `least_difference`
  slow,          ///< by `least_difference` or more
  fast,          ///< by `least_difference` or more
  unsure,        ///< the runs do not decide it
};

[[nodiscard]] std::string_view name(GpuVerdict verdict) noexcept;

/// One GPU compared with the median of the others.
struct GpuFinding {
  std::string gpu;
  GpuVerdict verdict = GpuVerdict::unsure;
  double ratio = 1;         ///< of times: 1.03 is 3% slower
  Interval interval{1, 1};  ///< misses the true ratio in `false_alarms` of all cases
  int cells = 0;            ///< number of cells in which it was compared
  int runs = 0;             ///< number of its own runs in these
  int others = 0;           ///< number of GPUs that it was compared with
};

/// Compares every GPU that shares a cell with another, the slowest first. There is no correction by the reference
/// kernel, which is slow on a slow GPU, too.
[[nodiscard]] std::vector<GpuFinding> compare_gpus(std::span<const FleetCell> cells);

}  // namespace ce::tuner
