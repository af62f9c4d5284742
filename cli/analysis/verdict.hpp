#pragma once
/// \file
/// Has a kernel become slower? Compares two populations of runs, and gives a verdict. docs/measuring.md describes the
/// method.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/analysis/bootstrap.hpp"

namespace ce::tuner {

/// Ratios closer to 1 than this do not matter.
inline constexpr double least_effect = 0.01;
/// Rate at which equal populations are called faster or slower, at most.
inline constexpr double false_alarms = 0.001;
/// Rate at which populations that differ by `least_effect` are called the same, at most.
inline constexpr double missed = 0.05;

/// Weight of a device's known noise in a comparison, in runs, at most.
inline constexpr double most_prior_degrees = 20;

/// One timing of a kernel. Its samples share an error, from clocks, temperature and the addresses of its tensors; so a
/// run, not a sample, is the unit of evidence. For a kernel that does not fill the device (fills_device() in
/// populations.hpp), a run is all timings of one process, which share an error, too.
struct Run {
  double median_us = 0;
  double error = 0;         ///< relative standard error of the median, according to its samples
  double reference_us = 0;  ///< time of the reference kernel in that run; 0 if not known
  double launch_us = 0;     ///< time of the reference on a single row; 0 if not known
  double process_us = 0;    ///< usual standard deviation between processes
};

/// The default of process_us, in microseconds, for kernels that do not fill the device.
inline constexpr double usual_process_us = 0.25;

enum class Verdict : std::uint8_t {
  faster,
  same,    ///< within `least_effect`
  slower,  ///< by `least_effect` or more
  unsure,  ///< the runs do not decide it
};

[[nodiscard]] std::string_view name(Verdict verdict) noexcept;

/// The scatter of runs of one kernel.
struct Noise {
  /// Standard deviation, over that of an H200: usual_deviation().
  double scale = 1;
  /// Degrees of freedom of the scale. Experience with another GPU, in another machine, counts as two: with one run on
  /// each side only effects of some ten percent are accepted, until repeats show how quiet this machine is.
  double degrees = 2;
};

/// The relative standard deviation of the medians of runs of that length, in microseconds, on an H200.
/// \param without_launch  the launch overhead of each run was subtracted
[[nodiscard]] double usual_deviation(double us, bool without_launch = false) noexcept;

/// Pools groups of runs; the runs of a group are of one kernel and differ in nothing known.
[[nodiscard]] Noise pooled_noise(std::span<const std::vector<Run>> repeats);

struct Comparison {
  Verdict verdict = Verdict::unsure;
  double ratio = 1;         ///< new time over old time, after corrections
  Interval interval{1, 1};  ///< of the ratio; misses the true one in `false_alarms` of all cases
  Interval narrow{1, 1};    ///< misses it in 2 * `missed` of cases; within `least_effect` for Verdict::same
  std::optional<double> drift;  ///< of the reference kernel, new over old time, minus 1; nothing if not known
  double taken_out = 0;       ///< the corrected part of the drift; a small one may be noise of the reference
  int before = 0, after = 0;  ///< number of runs
  double deviation = 0;       ///< relative standard deviation of a single run

  /// Whether the verdict is unsure, and a slowdown that matters is possible.
  [[nodiscard]] bool may_be_slower() const noexcept {
    return verdict == Verdict::unsure && narrow.high > 1 + least_effect;
  }
};

/// \param before, after  at least one run each. Reference times and launch overheads are used if all runs have them, of
/// one kernel.
[[nodiscard]] Comparison compare(std::span<const Run> before, std::span<const Run> after, const Noise& noise);

/// Number of runs that detect a slowdown of 1.5% in 80 of 100 comparisons, and one of 3% in 95, with a margin.
/// \param deviation  relative deviation of a single run
/// \param before  number of existing runs to compare with; 0 for equally many new ones
/// \param known  degrees of freedom of the deviation known in advance, Noise::degrees
/// \returns nothing if a thousand are not enough
[[nodiscard]] std::optional<int> runs_needed(double deviation, int before = 0,
                                             double known = most_prior_degrees);

/// Bounds: fewer runs would rely on the usual noise, and more take too long.
inline constexpr int fewest_runs_to_make = 8, most_runs_to_make = 180;
/// The bounds for runs that are processes.
inline constexpr int most_processes_to_make = 320;

/// Number of runs for kernels of that length, in microseconds, within these bounds.
[[nodiscard]] int runs_to_make(double us, const Noise& noise);

/// The number after some runs have been made, according to their scatter. The scatter between processes is only known
/// roughly in advance, so this adds at most eight runs of processes, and is called again after them.
[[nodiscard]] int runs_to_make(std::span<const Run> made);

}  // namespace ce::tuner
