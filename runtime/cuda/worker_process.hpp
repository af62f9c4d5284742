#pragma once
/// \file
/// One worker as a process of the operating system.

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "runtime/cuda/worker_channel.hpp"

namespace ce::runtime::cuda {

/// The argument that makes `ce-tune` a compile worker.
inline constexpr const char* worker_argument = "compile-worker";

/// A running `program compile-worker`, with a socket as its standard input and output and standard error
/// shared. It gets no other descriptor, no blocked signal, and a process group of its own: Ctrl-C in a
/// terminal reaches the host program, which decides. It ends with this object, but not with the copy in a
/// forked process.
class WorkerProcess {
 public:
  /// \throws Error when the program cannot be started
  explicit WorkerProcess(const std::filesystem::path& program);
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  ~WorkerProcess();

  [[nodiscard]] Channel& channel() noexcept { return channel_; }
  [[nodiscard]] const Channel& channel() const noexcept { return channel_; }

  /// Closes its input, gives it that long to end by itself, kills it otherwise, and reaps it. Tells how it
  /// ended: "ended by signal 11 (Segmentation fault)".
  std::string end(std::chrono::milliseconds patience);

 private:
  WorkerProcess(const std::filesystem::path& program, std::pair<Descriptor, Descriptor> ends);

  Channel channel_;
  pid_t owner_;
  pid_t process_ = -1;  ///< -1 once reaped
};

/// For the worker: from here on it ends, whatever it is busy with, when the process that started it has
/// ended.
void end_with_parent();

}  // namespace ce::runtime::cuda
