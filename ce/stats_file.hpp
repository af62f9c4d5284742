#pragma once
/// \file
/// The counters as a file that Prometheus reads. Not installed.

#include <string>

#include "ce/stats.hpp"

namespace ce {

/// The counters in the text format of Prometheus, version 0.0.4: one sample a metric, with the process as its label.
[[nodiscard]] std::string prometheus_text(const Stats& stats, int process);

/// Where CE_STATS names a file, has it written every few seconds, as long as something was counted, and at the end of
/// the program: into a file beside it, which is then renamed, so that a reader sees the whole of one or the other. %p in
/// the name stands for the number of the process. What fails is said once and is no reason for anything else to fail.
void start_stats_file() noexcept;

}  // namespace ce
