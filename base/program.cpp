#include "base/program.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

#include "base/environment.hpp"
#include "base/own_descriptor.hpp"
#include "ce/error.hpp"

namespace ce {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t most_errors = 4096;

void require(bool works, const std::string& call, int error) {
  if (!works) throw Unsupported(fmt::format("{} failed: {}", call, std::generic_category().message(error)));
}

/// A file without a name. Unlike a pipe, it cannot block: the program may read it late or never.
OwnDescriptor file_of(std::string_view text) {
  OwnDescriptor file([] { return ::memfd_create("ce-input", MFD_CLOEXEC); });
  require(file.get() >= 0, "memfd_create", errno);
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    require(written > 0 || errno == EINTR, "write", errno);
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  require(::lseek(file.get(), 0, SEEK_SET) == 0, "lseek", errno);
  return file;
}

struct OutputPipe {
  OwnDescriptor reading, writing;
  bool is_open = true;

  OutputPipe() {
    int end = -1;
    writing = OwnDescriptor([&] {
      std::array<int, 2> ends{};
      if (::pipe2(ends.data(), O_CLOEXEC) != 0) return -1;
      end = ends[0];
      return ends[1];
    });
    require(writing.get() >= 0, "pipe2", errno);
    reading = OwnDescriptor([&] { return end; });
  }

  /// Reads what is available now. \returns whether there was any
  bool read(std::string& text, std::size_t most) {
    std::array<char, 1 << 14> part{};
    const ssize_t bytes = ::read(reading.get(), part.data(), part.size());
    if (bytes < 0 && errno == EINTR) return true;
    if (bytes <= 0) is_open = false;
    if (bytes > 0)
      text.append(part.data(), std::min(static_cast<std::size_t>(bytes), most - std::min(most, text.size())));
    return bytes > 0;
  }
};

pid_t spawn(const std::vector<std::string>& arguments, int input, int output, int errors) {
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  // The program starts with default signals, whatever this process blocks or ignores.
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, argv.front(), &actions, &attributes, argv.data(), environment_of_programs());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  require(error == 0, "starting " + arguments.front(), error);
  return child;
}

/// Whether the program has ended. It is not reaped: until then no other process can get its group's number.
bool has_ended(pid_t child) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
    return errno == ECHILD;
  return info.si_pid == child;
}

/// Waits until the program ends or exceeds a bound. \returns which bound; empty if it ended
std::string follow(pid_t child, OutputPipe& output, OutputPipe& errors, const ProgramBounds& bounds,
                   ProgramEnd& end) {
  constexpr int pause_ms = 5;
  const auto deadline = Clock::now() + bounds.time;
  for (bool ended = false;;) {
    std::array<pollfd, 2> events{pollfd{output.is_open ? output.reading.get() : -1, POLLIN, 0},
                                 pollfd{errors.is_open ? errors.reading.get() : -1, POLLIN, 0}};
    // Read once more: output from before the end is complete only now.
    ended = ended || has_ended(child);
    const int ready = ::poll(events.data(), events.size(), ended ? 0 : pause_ms);
    if (ready <= 0 && ended) return {};
    if (ready > 0 && events[0].revents != 0) output.read(end.output, bounds.most_output + 1);
    if (ready > 0 && events[1].revents != 0) errors.read(end.errors, most_errors);
    if (end.output.size() > bounds.most_output)
      return fmt::format("stopped because it wrote more than {} bytes", bounds.most_output);
    if (Clock::now() >= deadline)
      return fmt::format("stopped because it ran for more than {} ms", bounds.time.count());
  }
}

}  // namespace

ProgramEnd run_program(const std::vector<std::string>& arguments, std::string_view input,
                       const ProgramBounds& bounds) {
  const OwnDescriptor in = file_of(input);
  OutputPipe output, errors;
  const pid_t child = spawn(arguments, in.get(), output.writing.get(), errors.writing.get());
  output.writing.reset();
  errors.writing.reset();
  ProgramEnd end;
  end.failure = follow(child, output, errors, bounds, end);
  if (!end.failure.empty()) {
    ::kill(-child, SIGKILL);
    ::kill(child, SIGKILL);  // in case it has left its group
  }
  int status = 0;
  pid_t reaped = 0;
  while ((reaped = ::waitpid(child, &status, 0)) < 0 && errno == EINTR) {
  }
  if (reaped == child && WIFEXITED(status)) end.status = WEXITSTATUS(status);
  return end;
}

}  // namespace ce
