#pragma once
/// \file
/// Counters of the library in this process.

#include <cstdint>

#include "ce/export.hpp"
#include "ce/language.hpp"

namespace ce {

/// Counters of this process, over all Contexts and threads, since its start or, in a child, since fork(). If the
/// environment variable CE_STATS names a file, the library writes them there as Prometheus text every few seconds and
/// at the end of the program.
struct Stats {
  std::uint64_t calls = 0;     ///< calls of run(), Plan::run() and prepare(), including failed ones
  std::uint64_t known = 0;     ///< those of them that launched without looking up a kernel
  std::uint64_t tuned = 0;     ///< problems that were tuned
  std::uint64_t fallback = 0;  ///< times that a problem got a kernel without a winner
  std::uint64_t compiled = 0;  ///< kernels that were compiled
  std::uint64_t waited = 0;    ///< calls that waited for another thread or process to tune their problem
  std::uint64_t errors = 0;    ///< calls that threw
};

/// Reads the counters. It takes no lock that calls of known problems take. Calls that other threads make meanwhile may
/// or may not be counted.
[[nodiscard]] CE_API Stats stats();

}  // namespace ce
