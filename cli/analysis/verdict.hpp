#pragma once
/// \file
/// Has a kernel become slower? Two populations of runs in, a verdict out. docs/measuring.md has the method.

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
/// How often two populations that are the same are called faster or slower, at most.
inline constexpr double false_alarms = 0.001;
/// How often two that differ by `least_effect` are called the same, at most.
inline constexpr double missed = 0.05;

/// Runs that the noise of a device weighs as much as in a comparison, at most.
inline constexpr double most_prior_degrees = 20;

/// One time that a kernel was timed: its samples are off together, by clocks, temperature and where in memory
/// its tensors were. So a run, and not a sample, is the unit of evidence. Of a kernel that does not fill the device
/// (fills_device() in populations.hpp), a run is all that one process timed: that is off together, too.
struct Run {
  double median_us = 0;
  double error = 0;         ///< standard error of the median as far as its samples show it, relative
  double reference_us = 0;  ///< time of the kernel that never changes, at that time; 0 where not known
  double launch_us = 0;     ///< of the same on a single row; 0 where not known
  double process_us = 0;    ///< usual standard deviation of what its process has to itself
};

/// In microseconds, of kernels that do not fill the device.
inline constexpr double usual_process_us = 0.25;

enum class Verdict : std::uint8_t {
  faster,
  same,    ///< within `least_effect`
  slower,  ///< by `least_effect` or more
  unsure,  ///< the runs do not tell
};

[[nodiscard]] std::string_view name(Verdict verdict) noexcept;

/// How far runs of one kernel are from each other.
struct Noise {
  /// Standard deviation over that of an H200, usual_deviation().
  double scale = 1;
  /// Degrees of freedom that the scale is known with. What another GPU showed, in another machine, is worth two: of
  /// one run a side only effects of some ten percent are believed, until repeats show how quiet this machine is.
  double degrees = 2;
};

/// The relative standard deviation of the medians of runs of that length, in microseconds, on an H200.
/// \param without_launch  what the launch of each cost was taken out
[[nodiscard]] double usual_deviation(double us, bool without_launch = false) noexcept;

/// Pooled over runs that differ in nothing that is known, each of these groups of one kernel.
[[nodiscard]] Noise pooled_noise(std::span<const std::vector<Run>> repeats);

struct Comparison {
  Verdict verdict = Verdict::unsure;
  double ratio = 1;         ///< time after over time before, without what was taken out
  Interval interval{1, 1};  ///< of the ratio: misses it in `false_alarms` of all cases
  Interval narrow{1, 1};    ///< misses it in 2 * `missed`: lies within `least_effect` for Verdict::same
  std::optional<double>
      drift;  ///< of the reference kernel, after over before, less 1; nothing where it is not known
  double taken_out = 0;  ///< what of the drift the ratio is without; a small one may be the reference's own
  int before = 0, after = 0;  ///< runs
  double deviation = 0;       ///< standard deviation of a single run, relative

  /// Unsure, and a slowdown that matters is not excluded.
  [[nodiscard]] bool may_be_slower() const noexcept {
    return verdict == Verdict::unsure && narrow.high > 1 + least_effect;
  }
};

/// \param before, after  one run or more each. References and what launches cost are used where all runs have them, of
/// one kernel.
[[nodiscard]] Comparison compare(std::span<const Run> before, std::span<const Run> after, const Noise& noise);

/// How many runs it takes to find a slowdown of 1.5% in 80 of 100 comparisons, and one of 3% in 95, amply.
/// \param deviation  of a single run, relative
/// \param before  runs that there are to hold them against; 0 for as many again
/// \param known  degrees of freedom that the deviation is known with beforehand, Noise::degrees
/// \returns nothing where a thousand would not do
[[nodiscard]] std::optional<int> runs_needed(double deviation, int before = 0,
                                             double known = most_prior_degrees);

/// Fewer would rest on what is usual, and more take longer than they are worth.
inline constexpr int fewest_runs_to_make = 8, most_runs_to_make = 180;
/// Of runs that are processes.
inline constexpr int most_processes_to_make = 320;

/// How many runs to make of kernels of that length, in microseconds: as many, within these bounds.
[[nodiscard]] int runs_to_make(double us, const Noise& noise);

/// The same once some have been made: as many as these scatter. How far processes are apart is known but roughly before,
/// so of them eight more at most, to ask again then.
[[nodiscard]] int runs_to_make(std::span<const Run> made);

}  // namespace ce::tuner
