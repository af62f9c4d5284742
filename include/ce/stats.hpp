#pragma once
/// \file
/// What the library has done in this process.

#include <cstdint>

#include "ce/export.hpp"
#include "ce/language.hpp"

namespace ce {

/// Counts of this process, over all Contexts and threads, since its start or, in a child, since fork(). The environment
/// variable CE_STATS names a file that gets them as Prometheus text every few seconds and at the end of the program.
struct Stats {
  std::uint64_t calls = 0;  ///< of run(), Plan::run() and prepare(), those that failed included
  std::uint64_t known = 0;  ///< of these, launched without asking which kernel
  std::uint64_t tuned = 0;  ///< problems that were tuned
  std::uint64_t fallback =
      0;  ///< problems that got a kernel without a winner; one that got several counts each time
  std::uint64_t compiled = 0;  ///< kernels that were compiled
  std::uint64_t waited = 0;    ///< calls that waited for another thread or process that tuned their problem
  std::uint64_t errors = 0;    ///< calls that threw
};

/// Takes no lock that a call of a known problem takes. Calls that other threads make meanwhile may be counted or not.
[[nodiscard]] CE_API Stats stats();

}  // namespace ce
