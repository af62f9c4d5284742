#pragma once
/// \file
/// Times a winner now, side by side with pure memory traffic of the same kind and size.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"
#include "tuner/kernel.hpp"
#include "tuner/statistics.hpp"
#include "tuner/tuner.hpp"

namespace ce::tuner {

/// Samples of one kernel, and figures computed from them.
struct Timing {
  std::string config;  ///< text form, or "driver copy"
  std::int64_t bytes = 0;
  std::vector<float> samples_us;
  double median_us = 0;
  double spread = 0;  ///< interquartile range over median

  /// Throughput in 1e9 bytes a second.
  [[nodiscard]] double gbs() const noexcept { return gbs_of(bytes, median_us); }
};

struct Retiming {
  generator::Problem problem;      ///< as timed: with fewer rows if scratch memory was short
  Timing winner;                   ///< its bytes are the fewest that must move
  std::int64_t partial_bytes = 0;  ///< bytes that the winner's blocks pass to each other
  Timing ceiling;                  ///< the fastest ceiling kernel

  [[nodiscard]] double share() const noexcept { return ceiling.gbs() > 0 ? winner.gbs() / ceiling.gbs() : 0; }
};

/// Kernels timed side by side.
struct Beside {
  std::vector<cache::Measurement> measurements;  ///< complete except for the stage; in the requested order
  std::vector<float> references_us;              ///< reference times, one for each turn; empty on the host
  std::string reference;                         ///< the reference kernel: see Bench::reference()
};

/// Not thread-safe. Stores no measurements: its results are for the caller.
class Retimer {
 public:
  /// Both references must outlive the Retimer.
  Retimer(runtime::Device& device, cache::Cache& cache, const Settings& settings);

  /// Times the config and the ceiling in turns, so that drift of the machine affects both alike. The ceiling is the
  /// fastest of the `bandwidth` kernels and, for a copy that is not in place, of the driver's own copy: one read, a
  /// copy, or two reads and one write, as in the problem, with as many bytes.
  /// \param samples  samples of each kernel
  /// \throws Error(interrupted) when asked to stop, Error(verification) if no ceiling kernel works, CompileError,
  /// DeviceError
  [[nodiscard]] Retiming time(const generator::Problem& problem, const generator::Config& config, int samples,
                              const Hooks& hooks = {});

  /// Times configs of one problem side by side, in turns that begin with the reference. A turn in which the reference
  /// is slower than usual is repeated (is_steady()).
  /// \param key  key of the measurements; its problem may have more rows
  /// \param samples, a_turn  samples of each config, in total and in one turn
  /// \throws as time()
  [[nodiscard]] Beside time_beside(const cache::Key& key, const generator::Problem& problem,
                                   std::span<const generator::Config> configs, int samples, int a_turn,
                                   const Hooks& hooks = {});

  /// Median time, in microseconds, of a kernel that does almost nothing: the `read` of one row of 128 columns.
  [[nodiscard]] double launch_floor_us(int samples);

 private:
  /// Working ceiling kernels; loaded once for each kind of traffic, as they serve every size.
  const std::vector<Kernel>& ceilings(generator::Operation kind);

  runtime::Device& device_;
  cache::Cache& cache_;
  Settings settings_;
  std::map<generator::Operation, std::vector<Kernel>> ceilings_;
};

}  // namespace ce::tuner
