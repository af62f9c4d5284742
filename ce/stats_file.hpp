#pragma once
/// \file
/// Writes the counters to a file that Prometheus reads. Not installed.

#include <string>

#include "ce/stats.hpp"

namespace ce {

/// The counters in the text format of Prometheus, version 0.0.4: one sample for each metric, with the process as its
/// label.
[[nodiscard]] std::string prometheus_text(const Stats& stats, int process);

/// If CE_STATS names a file, has the counters written to it every few seconds, as long as they change, and at the end
/// of the program: to a file beside it, which is then renamed, so that a reader sees one whole version. %p in the name
/// stands for the process id. Failures are logged once and have no other effect.
void start_stats_file() noexcept;

}  // namespace ce
