#pragma once
/// \file
/// Compiles in worker processes: within one process, NVRTC compiles one text at a time, however many threads call it.

#include <sys/types.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/device.hpp"
#include "runtime/workers/settings.hpp"

namespace ce::runtime::cuda {

/// The NVRTC that the calling process has opened; both empty if it has opened none.
struct NvrtcChoice {
  std::string path;
  std::string version;
};

/// Starts workers as they are needed, and keeps them until it is destroyed. Every method may be called from any thread.
/// In a forked process it neither uses nor ends the workers of its parent.
class WorkerPool {
 public:
  explicit WorkerPool(WorkerSettings settings);
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool();

  /// Number of workers that compile at the same time; 0 if there are none, and the caller compiles.
  [[nodiscard]] int size() const;

  /// Why there are no workers, or fewer than wanted; empty if nothing has gone wrong.
  [[nodiscard]] std::string problem() const;

  /// Waits for an idle worker and compiles. Returns nothing if there is no worker of the same `ce` version and, once
  /// the caller has opened one, with the same NVRTC; the reason is logged once. \throws the errors of Nvrtc::compile();
  /// CompileError also for a worker that dies, is silent past the limit or sends an invalid answer; it is then killed,
  /// and replaced at the next call
  [[nodiscard]] std::optional<Binary> compile(const CompileRequest& request, int capability,
                                              const NvrtcChoice& nvrtc);

 private:
  class Worker;
  class Lease;

  std::unique_ptr<Worker> acquire(const NvrtcChoice& nvrtc);
  std::unique_ptr<Worker> start(const NvrtcChoice& nvrtc);
  void shrink(const std::string& problem);
  void give_back(std::unique_ptr<Worker> worker) noexcept;
  void discard(std::unique_ptr<Worker> worker) noexcept;

  const WorkerSettings settings_;
  const pid_t owner_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int size_;         ///< number of workers allowed; falls to the running ones if one cannot be started
  int running_ = 0;  ///< idle, busy or being started
  std::string problem_;
  std::vector<std::unique_ptr<Worker>> idle_;  ///< the last one was used last: its memory is warm
};

}  // namespace ce::runtime::cuda
