#pragma once
/// \file
/// Which GPU of a fleet is slow? Runs of the same kernels on many GPUs of one model in, a ratio for each out.
/// docs/measuring.md has the method.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/analysis/bootstrap.hpp"
#include "cli/analysis/verdict.hpp"

namespace ce::tuner {

/// A GPU that differs by less from its fleet is as any other.
inline constexpr double least_difference = 0.02;

struct GpuRuns {
  std::string gpu;
  std::vector<Run> runs;
};

/// Runs of one config on one problem with the same software and as many rows, by GPU.
using FleetCell = std::vector<GpuRuns>;

enum class GpuVerdict : std::uint8_t {
  as_the_fleet,  ///< within `least_difference`
  slow,          ///< by `least_difference` or more
  fast,          ///< the same to the other side
  unsure,        ///< the runs do not tell
};

[[nodiscard]] std::string_view name(GpuVerdict verdict) noexcept;

/// One GPU held against the median of the others.
struct GpuFinding {
  std::string gpu;
  GpuVerdict verdict = GpuVerdict::unsure;
  double ratio = 1;         ///< of times: 1.03 is 3% slower
  Interval interval{1, 1};  ///< misses it in `false_alarms` of all cases
  int cells = 0;            ///< in which it was compared
  int runs = 0;             ///< of its own in these
  int others = 0;           ///< GPUs that it was held against
};

/// Every GPU that has a cell with another, the slowest first. Nothing is taken out for the reference kernel: it is slow on a
/// GPU that is.
[[nodiscard]] std::vector<GpuFinding> compare_gpus(std::span<const FleetCell> cells);

}  // namespace ce::tuner
