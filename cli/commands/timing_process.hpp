#pragma once
/// \file
/// Times kernels in a process of its own: a kernel that does not fill the device takes equally long in each run of one
/// process, but not in the next process (docs/measuring.md).

#include <filesystem>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "cli/commands/tuning_run.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"
#include "runtime/workers/process.hpp"

namespace ce::cli {

/// The only argument of ce-tune as such a process.
inline constexpr const char* timing_worker_argument = "timing-worker";

class TimingProcess {
 public:
  /// Starts it. It finds compiled kernels in the cache's file. Both references must outlive this object.
  /// \param program  this program, which timing_worker_argument turns into the process
  TimingProcess(const runtime::Device& device, const cache::Cache& cache, const TuningOptions& options,
                const std::filesystem::path& program = "/proc/self/exe");

  /// Like Retimer::time_beside(), and throws its errors; Error(device) if the process dies. Stores nothing.
  [[nodiscard]] std::vector<cache::Measurement> time_beside(const cache::Key& key,
                                                            const generator::Problem& problem,
                                                            std::span<const generator::Config> configs,
                                                            int samples, int a_turn,
                                                            const std::stop_token& stop);

 private:
  const runtime::Device& device_;
  const cache::Cache& cache_;
  TuningOptions options_;
  runtime::cuda::WorkerProcess process_;
};

/// Runs the process: times what arrives on `in` and answers on `out`, until its parent closes `in` or ends.
/// \return as answer_jobs()
[[nodiscard]] int timing_worker_main(int in, int out);

}  // namespace ce::cli
