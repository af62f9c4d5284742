#pragma once
/// \file
/// Other processes for the tests: this program again, with a task instead of its tests.

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace ce::cache::test {

/// A running copy of this program. Killed and reaped with its owner.
class Process {
 public:
  /// \param arguments  a task and its arguments, as run_task() knows them
  explicit Process(std::vector<std::string> arguments);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  /// The next line that it printed; nothing at the end of its output.
  [[nodiscard]] std::optional<std::string> line();
  /// All that is left of its output, as text.
  [[nodiscard]] std::string rest();
  void kill();
  /// Waits until it has stopped itself. \returns whether it has; else it has ended
  [[nodiscard]] bool wait_for_stop();
  /// After that.
  void go_on();
  /// The exit code; minus the signal when one ended it.
  [[nodiscard]] int wait();

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  std::string pending_;
};

/// Runs the task and returns the exit code of the process; nothing when the arguments name no task.
[[nodiscard]] std::optional<int> run_task(const std::vector<std::string>& arguments);

}  // namespace ce::cache::test
