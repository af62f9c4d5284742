#pragma once
/// \file
/// One worker as a process of the operating system, seen from both sides.

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "runtime/workers/channel.hpp"

namespace ce::runtime::cuda {

/// How a process ended.
struct ProcessEnd {
  std::string words;      ///< such as "ended by signal 11 (Segmentation fault)"
  bool exited = false;    ///< by itself
  int signal = 0;         ///< that ended it; 0 for none, or none that is known
  bool by_owner = false;  ///< who lost patience with it
};

/// A running `program argument`, with a socket as its standard input and output and standard error
/// shared. It gets no other descriptor, no blocked signal, and a process group of its own: Ctrl-C in a
/// terminal reaches the host program, which decides. It ends with this object, but not with the copy in a
/// forked process.
class WorkerProcess {
 public:
  /// \throws Error when the program cannot be started
  WorkerProcess(const std::filesystem::path& program, const std::string& argument);
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  ~WorkerProcess();

  [[nodiscard]] Channel& channel() noexcept { return channel_; }
  [[nodiscard]] const Channel& channel() const noexcept { return channel_; }

  /// Closes its input, gives it that long to end by itself, kills it otherwise, and reaps it.
  ProcessEnd end(std::chrono::milliseconds patience);

 private:
  WorkerProcess(const std::filesystem::path& program, const std::string& argument,
                std::pair<Descriptor, Descriptor> ends);

  Channel channel_;
  pid_t owner_;
  pid_t process_ = -1;  ///< -1 once reaped
};

/// For the worker: from here on it ends, whatever it is busy with, when the process that started it has
/// ended.
void end_with_parent();

/// For the worker: its side of the conversation. From here on it ends with its parent, and what else is
/// written to its standard input and output goes to standard error.
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
