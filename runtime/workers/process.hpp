#pragma once
/// \file
/// One worker process, seen from both sides.

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "runtime/workers/channel.hpp"

namespace ce::runtime::cuda {

/// How a process ended.
struct ProcessEnd {
  std::string words;      ///< such as "ended by signal 11 (Segmentation fault)"
  bool exited = false;    ///< it ended by itself
  int signal = 0;         ///< the signal that ended it; 0 for none or an unknown one
  bool by_owner = false;  ///< its owner killed it after a timeout
};

/// A running `program argument`, with a socket as its standard input and output; standard error is shared. It inherits
/// no other descriptor, no blocked signal, and gets its own process group: Ctrl-C in a terminal only reaches the host
/// program, which decides. It ends with this object, but not with the copy in a forked process.
class WorkerProcess {
 public:
  /// \throws Error if the program cannot be started
  WorkerProcess(const std::filesystem::path& program, const std::string& argument);
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  ~WorkerProcess();

  [[nodiscard]] Channel& channel() noexcept { return channel_; }
  [[nodiscard]] const Channel& channel() const noexcept { return channel_; }

  /// Closes its input, waits that long for it to end by itself, kills it otherwise, and reaps it.
  ProcessEnd end(std::chrono::milliseconds patience);

 private:
  WorkerProcess(const std::filesystem::path& program, const std::string& argument,
                std::pair<Descriptor, Descriptor> ends);

  Channel channel_;
  pid_t owner_;
  pid_t process_ = -1;  ///< -1 once reaped
};

/// Called by the worker: from now on it ends, even in the middle of work, when the process that started it has ended.
void end_with_parent();

/// The worker's side of the conversation. From now on the worker ends with its parent, and other output to its standard
/// input and output goes to standard error.
class ParentProcess {
 public:
  /// \param in   a socket, or the end of a pipe
  /// \param out  the same socket, or the end of another pipe
  ParentProcess(int in, int out);

  [[nodiscard]] Channel& channel() noexcept { return channel_; }

 private:
  Descriptor out_;
  Channel channel_;
};

}  // namespace ce::runtime::cuda
