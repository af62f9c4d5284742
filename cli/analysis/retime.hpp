#pragma once
/// \file
/// How fast is a winner now, beside nothing but memory traffic of the same kind and size?

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

/// Samples of one kernel and what follows from them.
struct Timing {
  std::string config;  ///< text form, or "driver copy"
  std::int64_t bytes = 0;
  std::vector<float> samples_us;
  double median_us = 0;
  double spread = 0;  ///< interquartile range over median

  /// 1e9 bytes a second.
  [[nodiscard]] double gbs() const noexcept { return gbs_of(bytes, median_us); }
};

struct Retiming {
  generator::Problem problem;      ///< as it was timed: with fewer rows where scratch memory was short
  Timing winner;                   ///< its bytes are the fewest that must move
  std::int64_t partial_bytes = 0;  ///< that the winner leaves for its other blocks
  Timing ceiling;                  ///< the fastest that was found

  [[nodiscard]] double share() const noexcept { return ceiling.gbs() > 0 ? winner.gbs() / ceiling.gbs() : 0; }
};

/// Kernels timed beside each other.
struct Beside {
  std::vector<cache::Measurement>
      measurements;                  ///< complete but for the stage; in the order that was asked for
  std::vector<float> references_us;  ///< of a kernel that never changes, one for each turn; empty on the host
  std::string reference;             ///< which: see Bench::reference()
};

/// Not thread-safe. Writes no measurement down: what it finds is of this run.
class Retimer {
 public:
  /// Both must outlive the Retimer.
  Retimer(runtime::Device& device, cache::Cache& cache, const Settings& settings);

  /// Times the config and the ceiling in turns, so that drift of the machine meets both alike. The ceiling is
  /// the fastest of the `bandwidth` kernels and, for a copy that is not in place, of the driver's own: one read, a copy, or
  /// two reads and one write, whichever the problem is, of as many bytes.
  /// \param samples  of each
  /// \throws Error(interrupted) when asked to stop, Error(verification) where no ceiling kernel works,
  /// CompileError, DeviceError
  [[nodiscard]] Retiming time(const generator::Problem& problem, const generator::Config& config, int samples,
                              const Hooks& hooks = {});

  /// Times configs of one problem beside each other, in turns that begin with the reference. A turn in which that is
  /// slower than usual is taken again, as is_steady() says.
  /// \param key  of the measurements: the problem's may be of more rows
  /// \param samples, a_turn  of each config, in all and before it is the next one's turn
  /// \throws as time()
  [[nodiscard]] Beside time_beside(const cache::Key& key, const generator::Problem& problem,
                                   std::span<const generator::Config> configs, int samples, int a_turn,
                                   const Hooks& hooks = {});

  /// Median time, in microseconds, of a kernel that does next to nothing: the `read` of one row of 128
  /// columns.
  [[nodiscard]] double launch_floor_us(int samples);

 private:
  /// Ceiling kernels that work; loaded once for each kind of traffic, as they serve every size.
  const std::vector<Kernel>& ceilings(generator::Operation kind);

  runtime::Device& device_;
  cache::Cache& cache_;
  Settings settings_;
  std::map<generator::Operation, std::vector<Kernel>> ceilings_;
};

}  // namespace ce::tuner
